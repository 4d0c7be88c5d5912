"""State that every rank has for itself: how it is handed over to be saved, and how it comes back.

A state tree may hold :class:`PerRank` leaves, such as the residuals of compressed gradients. Every rank's own goes to a
file of that rank. When the state is loaded, in each of these places is a :class:`RankStates`, from which any rank
takes its own or, when the number of ranks has changed, whatever its owner's rule says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class PerRank:
    """A part of a state tree that differs between ranks; a leaf. It may hold no further parts of this kind, nor of any
    other that is cut over the ranks.

    :param state: a tree of dicts, lists, numbers, text, None, tensors and arrays.
    """

    state: Any


class RankStates:
    """What every rank has saved in one place.

    :param world_size: number of ranks that saved.
    :param read: the state of a rank, None where it saved none.
    """

    def __init__(self, world_size: int, read: Callable[[int], Any]) -> None:
        self.world_size = world_size
        self._read = read

    def of(self, rank: int) -> Any:
        """The state that this rank saved; None where there was no such rank, or it saved none here."""
        return self._read(rank) if 0 <= rank < self.world_size else None

    def __repr__(self) -> str:
        return f"RankStates(of {self.world_size})"
