"""When to save, and what the watched loss was since the last save."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ostinato.dist import Alone, Group
from ostinato.dist.per_rank import PerRank, RankStates
from ostinato.loop.agreement import AGREE_EVERY
from ostinato.loop.inner_trigger import ask_inside, get_inner_trigger
from ostinato.loop.protocols import TrainerView
from ostinato.loop.reporter import is_scalar
from ostinato.loop.triggers.parts import group_of
from ostinato.loop.triggers.trigger import Decided, Trigger, decided_by

_log = logging.getLogger(__name__)

_FOLD_AT = 256


class SaveDue(Trigger):
    """Fires when an ordinary save or a snapshot is due, or when one was asked for.

    A trigger is asked after every update, with the observation complete. So this is also the place that sees every
    value of the watched loss; values stay tensors until a save needs their mean.

    Where several ranks train together, each of them asks. What follows from the counters needs no message. Requests,
    and triggers that could answer differently on different ranks, are agreed on every ``trainer.agree_every``
    iterations (10 where the trainer does not say); of such a trigger the answers of rank 0 count.

    :param every: when an ordinary save is due, anything :func:`~ostinato.loop.triggers.get_trigger` takes.
    :param snapshot_every: when a snapshot is due; None: never.
    :param monitor: key of the observation whose mean is kept; None: none.
    :param on_asked: called with the trainer in every iteration.
    """

    decided: Decided = "ranks"

    def __init__(
        self,
        every: Any,
        snapshot_every: Any = None,
        monitor: str | None = None,
        *,
        on_asked: Callable[[TrainerView], None] | None = None,
    ) -> None:
        self.every = get_inner_trigger(every)
        self.snapshot_every = get_inner_trigger(snapshot_every)
        self.monitor = monitor
        self._on_asked = on_asked
        self.is_requested = False
        self.is_snapshot_due = False
        self._waiting = [False, False]  # answers of rank 0 that the others do not know yet
        self._has_warned = False
        self._values: list[Tensor] = []
        self._sum = 0.0
        self._count = 0
        self._group: Group = Alone()
        self._loaded: RankStates | None = None

    def __call__(self, trainer: TrainerView) -> bool:
        if self._on_asked is not None:
            self._on_asked(trainer)
        if self.monitor is not None:
            value = trainer.observation.get(self.monitor)
            if value is not None:
                self.add(value)
        # Both are asked every time: a trigger that is not asked loses its place.
        is_save_due, self.is_snapshot_due = ask_inside(self.every, trainer), ask_inside(self.snapshot_every, trainer)
        if self._group.size == 1:
            return is_save_due or self.is_snapshot_due or self.is_requested
        return self._is_due_together(trainer, is_save_due)

    def _is_due_together(self, trainer: TrainerView, is_save_due: bool) -> bool:
        due = [is_save_due, self.is_snapshot_due]
        for index, part in enumerate((self.every, self.snapshot_every)):
            if decided_by(part) == "rank0":
                self._waiting[index] |= due[index]
                due[index] = False
        is_asked_for = False
        if trainer.updater.state.iteration % getattr(trainer, "agree_every", AGREE_EVERY) == 0:
            told = self._group.gather((*self._waiting, self.is_requested))
            due = [due[0] or told[0][0], due[1] or told[0][1]]
            is_asked_for = any(requested for _, _, requested in told)
            self._waiting = [False, False]
        self.is_snapshot_due = due[1]
        return due[0] or due[1] or is_asked_for

    def add(self, value: Any) -> None:
        """Take one value of the watched loss: a number or a tensor with one element, or a pair of one with a weight, of
        which the value counts. What is none is left out, with one warning."""
        if isinstance(value, tuple) and len(value) == 2:
            value = value[0]
        if not is_scalar(value):
            if not self._has_warned:
                self._has_warned = True
                _log.warning("the watched value %r is left out, it is not a number", self.monitor)
            return
        self._count += 1
        if isinstance(value, Tensor):
            self._values.append(value.detach())
            if len(self._values) >= _FOLD_AT:
                self._fold()
        else:
            self._sum += float(value)

    def _fold(self) -> None:
        if self._values:
            # The one wait for the device, once per save or per 256 iterations.
            self._sum += math.fsum(torch.stack([value.reshape(()) for value in self._values]).tolist())
            self._values.clear()

    def take(self) -> tuple[float, int]:
        """Sum and number of the values since the last call; counting starts anew."""
        self._fold()
        total, count = self._sum, self._count
        self._sum, self._count = 0.0, 0
        return total, count

    def give_back(self, total: float, count: int) -> None:
        """Take back what belonged to a save that failed: it still is "since the last save"."""
        self._sum += total
        self._count += count

    def initialize(self, trainer: TrainerView) -> None:
        """Let both triggers take their base line.

        Where the number of ranks has changed, every saved sum goes on in one of them, so the mean over all is the same.
        """
        self._group = group_of(trainer)
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            for rank in range(self._group.rank, loaded.world_size, self._group.size):
                sums = loaded.of(rank) or {}
                self.give_back(float(sums.get("sum", 0.0)), int(sums.get("count", 0)))
        elif self._group.rank > 0:
            self.take()  # what one process has saved goes on in rank 0
        for part in (self.every, self.snapshot_every):
            if isinstance(part, Trigger):
                part.initialize(trainer)

    def state_dict(self) -> dict[str, Any]:
        """The running mean and the states of the triggers."""
        self._fold()
        sums = {"sum": self._sum, "count": self._count}
        return {
            **(sums if self._group.size == 1 else {"of_ranks": PerRank(sums)}),
            "every": self.every.state_dict() if isinstance(self.every, Trigger) else None,
            "snapshot_every": self.snapshot_every.state_dict() if isinstance(self.snapshot_every, Trigger) else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a saved mean and saved triggers."""
        self._values.clear()
        self._loaded = state.get("of_ranks")
        self._sum, self._count = float(state.get("sum", 0.0)), int(state.get("count", 0))
        for part, saved in ((self.every, state["every"]), (self.snapshot_every, state["snapshot_every"])):
            if isinstance(part, Trigger) and saved is not None:
                part.load_state_dict(saved)

    def __repr__(self) -> str:
        snapshot = getattr(self.snapshot_every, "__qualname__", None) or repr(self.snapshot_every)
        every = getattr(self.every, "__qualname__", None) or repr(self.every)
        return f"SaveDue({every}, {snapshot}, {self.monitor!r})"
