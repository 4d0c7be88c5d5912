"""Ends a run whose watched value no longer gets better."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.loop.triggers.better import Mode, check_mode
from ostinato.loop.triggers.get_trigger import get_stop_trigger, get_trigger
from ostinato.loop.triggers.observed_mean import ObservedMean
from ostinato.loop.triggers.parts import ask_together, group_of, initialize_part, load_part, part_state, shown
from ostinato.loop.triggers.saved_memory import fits
from ostinato.loop.triggers.trigger import Trigger
from ostinato.loop.triggers.units import check_real

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView, TriggerFunction

_log = logging.getLogger(__name__)

_FORMAT = 1


class EarlyStoppingTrigger(Trigger):
    """A stop trigger: true when a value has not become better for ``patience`` checks in a row.

    What is compared at a check is the mean of all values since the check before; a pair (value, weight) counts with its
    weight. NaN is not better. An interval without a value changes nothing. With several ranks it is the weighted mean
    over all of them, exchanged only when ``check_trigger`` fires.

    Once it has stopped a run it keeps saying so, also after a resume, unless ``patience`` or ``max_trigger`` was
    raised.

    :param check_trigger: when it checks, as :func:`get_trigger` reads it.
    :param monitor: the observed value.
    :param patience: checks without a better value after which it stops, at least 1.
    :param mode: ``min``: smaller is better; ``max``: greater is; ``auto``: ``max`` if the name contains ``accuracy``.
    :param min_delta: a value has to be better than the best by more than this, 0 or more.
    :param max_trigger: the limit of the run, as :func:`get_stop_trigger` reads it; ``None``: no limit.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: when it has a value that is not allowed.
    """

    decided = "ranks"

    def __init__(
        self,
        check_trigger: Any = (1, "epoch"),
        monitor: str = "main/loss",
        patience: int = 3,
        mode: Mode = "auto",
        min_delta: float = 0.0,
        max_trigger: Any = (100, "epoch"),
    ) -> None:
        owner = type(self).__name__
        if isinstance(patience, bool) or not isinstance(patience, int):
            raise ArgumentTypeError(f"{owner}: patience must be a whole number, not {patience!r}.", value=patience)
        if patience < 1:
            raise ArgumentValueError(f"{owner}: patience must be 1 or more, not {patience}.", value=patience)
        self.monitor = monitor
        self.patience = patience
        self.mode = check_mode(mode, monitor, owner)
        self.min_delta = check_real(min_delta, "min_delta", owner)
        if self.min_delta < 0:
            raise ArgumentValueError(f"{owner}: min_delta must be 0 or more, not {min_delta!r}.", value=min_delta)
        self.parts = [get_trigger(check_trigger), get_stop_trigger(max_trigger)]
        self._mean = ObservedMean(monitor, owner)
        self._best = math.inf if self.mode == "min" else -math.inf
        self._count = 0
        self._stopped = False
        self._warned = False

    @property
    def best(self) -> float:
        """The best mean so far; plus or minus infinity before the first one."""
        return self._best

    @property
    def count(self) -> int:
        """Checks since the best mean."""
        return self._count

    @property
    def stopped(self) -> bool:
        """Whether it has said that the run ends, because the value did not get better."""
        return self._stopped

    @property
    def check_trigger(self) -> TriggerFunction:
        """When it checks."""
        return self.parts[0]

    @property
    def max_trigger(self) -> TriggerFunction:
        """The limit of the run."""
        return self.parts[1]

    def __call__(self, trainer: TrainerView) -> bool:
        self._mean.take(trainer.observation)
        if ask_together(self.check_trigger, trainer):
            self._check(trainer)
        at_limit = ask_together(self.max_trigger, trainer)  # asked every time: it may keep a count of its own
        return self._stopped or at_limit

    def _check(self, trainer: TrainerView) -> None:
        mean = self._mean.take_mean(group_of(trainer))
        if mean is None:
            if not self._warned:
                self._warned = True
                _log.warning("early stopping has nothing to watch: no %r since the last check", self.monitor)
            return
        if self._is_better(mean):
            self._best = mean
            self._count = 0
        else:
            self._count += 1
        self._stopped = self._count >= self.patience

    def _is_better(self, mean: float) -> bool:
        if self.mode == "min":
            return mean < self._best - self.min_delta  # false for NaN
        return mean > self._best + self.min_delta

    def initialize(self, trainer: TrainerView) -> None:
        """Initialize the inner triggers."""
        self._mean.initialize(group_of(trainer))
        initialize_part(self.check_trigger, trainer)
        initialize_part(self.max_trigger, trainer)

    def state_dict(self) -> dict[str, Any]:
        """``best``, ``count``, ``stopped``, the sums of the interval so far, and the states of the inner triggers."""
        return {
            "format": _FORMAT,
            "kind": "early stopping",
            "key": self.monitor,
            "mode": self.mode,
            "best": self._best,
            "count": self._count,
            "stopped": self._stopped,
            "interval": self._mean.state_dict(),
            "check_trigger": part_state(self.check_trigger),
            "max_trigger": part_state(self.max_trigger),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved memory, if it is one of early stopping by the same value; else start fresh."""
        if not fits(state, repr(self), version=_FORMAT, kind="early stopping", key=self.monitor, mode=self.mode):
            return
        self._best = float(state["best"])
        self._count = int(state["count"])
        self._stopped = bool(state["stopped"]) and self._count >= self.patience  # it may have been raised since
        self._mean.load_state_dict(state["interval"])
        load_part(self.check_trigger, state.get("check_trigger"))
        load_part(self.max_trigger, state.get("max_trigger"))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({shown(self.check_trigger)}, {self.monitor!r}, patience={self.patience}, "
            f"mode={self.mode!r}, min_delta={self.min_delta}, max_trigger={shown(self.max_trigger)})"
        )
