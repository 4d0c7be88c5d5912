"""Pairs of pictures, and whether each shows the same person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ostinato.recognition.verification.folds import FOLDS
from ostinato.recognition.verification.pictures import Picture


@dataclass(frozen=True, eq=False)
class PairSet:
    """Pairs to verify.

    :param name: short, for reports: ``lfw``.
    :param pictures: each once, in the order of their first use.
    :param pairs: (P, 2) the numbers of a pair's pictures.
    :param same: (P,) whether they show the same person.
    :param folds: into how many consecutive blocks the pairs are to be cut.
    :param notes: what should be said of the set whenever its numbers are shown, one sentence each.
    """

    name: str
    pictures: Sequence[Picture]
    pairs: NDArray[np.int64]
    same: NDArray[np.bool_]
    folds: int = FOLDS
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.same)

    def take(self, start: int, stop: int) -> PairSet:
        """Consecutive pairs, with those pictures alone that they need."""
        chosen = self.pairs[start:stop]
        used, first, place = np.unique(chosen, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return replace(
            self,
            pictures=[self.pictures[int(number)] for number in used[order]],
            pairs=rank[place].reshape(chosen.shape),
            same=self.same[start:stop],
        )

    def names(self) -> list[str]:
        """The names of the pictures in pair order: pair p is entries 2p and 2p + 1."""
        return [self.pictures[int(number)].name for number in self.pairs.reshape(-1)]
