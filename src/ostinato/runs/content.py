"""What goes into a generation and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ostinato.dist.per_rank import RankStates
from ostinato.runs.best import BestBar
from ostinato.runs.manifest import Manifest
from ostinato.runs.sessions import Session
from ostinato.runs.tree import Tree

KEEP_OPTIMIZER = "keep"
"""As ``GenerationContent.optimizer``: no new optimizer state; the one of the generation before is carried on."""


@dataclass(frozen=True)
class GenerationContent:
    """One state of a run, ready to be saved.

    :param iteration: number of completed updates.
    :param model: weights and buffers by name; any device.
    :param optimizer: state of the optimizers by *parameter name*, a tree; None for none; :data:`KEEP_OPTIMIZER` to
        carry on the state that is stored already.
    :param state: everything else that changes the next number, a tree.
    :param reasons: why it is made, out of ``manifest.REASONS``.
    :param epoch: number of completed passes.
    :param average_loss: mean of the watched loss since the last save; not finite counts as None.
    :param average_count: iterations in it.
    :param bar: the lowest average so far, this one included.
    :param rank_state: what this rank alone needs to go on, a tree; None where there is nothing of that kind. Where
        several ranks save together, everything else but :class:`~ostinato.runs.row_cut.RowCut` and
        :class:`~ostinato.dist.per_rank.PerRank` leaves is written by rank 0.
    """

    iteration: int
    model: Mapping[str, Tensor]
    optimizer: Tree = None
    state: Tree = None
    reasons: tuple[str, ...] = ("latest",)
    epoch: int = 0
    average_loss: float | None = None
    average_count: int = 0
    bar: BestBar = field(default_factory=BestBar)
    rank_state: Tree = None


@dataclass(frozen=True)
class LoadedGeneration:
    """One verified state, read from disk. Tensors are on the CPU; tables cut by rows stay on the disk.

    :param options: the effective options of the run at that time, nested; empty where none were recorded.
    :param sessions: those recorded in it.
    :param rank_states: what each of the ranks that saved it has for itself.
    """

    manifest: Manifest
    model: Mapping[str, Tensor]
    optimizer: Tree
    state: Tree
    options: Mapping[str, Any]
    sessions: tuple[Session, ...]
    rank_states: RankStates = field(default_factory=lambda: RankStates(1, lambda _rank: None))

    @property
    def iteration(self) -> int:
        """Number of completed updates."""
        return self.manifest.iteration

    @property
    def bar(self) -> BestBar:
        """The lowest average loss so far."""
        return BestBar(self.manifest.lowest_average, self.manifest.loss_definition)
