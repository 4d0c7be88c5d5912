"""Ends a run whose watched value has become good enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ostinato.loop.triggers.better import Mode, check_mode
from ostinato.loop.triggers.get_trigger import get_trigger
from ostinato.loop.triggers.observed_mean import ObservedMean
from ostinato.loop.triggers.parts import ask_together, group_of, initialize_part, load_part, part_state, shown
from ostinato.loop.triggers.saved_memory import fits
from ostinato.loop.triggers.trigger import Trigger
from ostinato.loop.triggers.units import check_real

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView

_FORMAT = 1


class ThresholdTrigger(Trigger):
    """A stop trigger: true from the first check on at which a value has reached a threshold.

    What is compared at a check is the mean of all values since the check before; a pair (value, weight) counts with its
    weight. NaN reaches nothing, nor does an interval without a value. With several ranks it is the weighted mean over
    all of them, exchanged only when ``trigger`` fires.

    Once it has stopped a run it keeps saying so, also after a resume, unless the threshold was moved beyond the value.

    :param key: the observed value.
    :param threshold: the value to reach, a finite number.
    :param mode: ``min``: reached by values up to the threshold; ``max``: by values from it on; ``auto``: ``max`` if the
        name contains ``accuracy``.
    :param trigger: when it checks, as :func:`get_trigger` reads it.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: when it has a value that is not allowed.
    """

    decided = "ranks"

    def __init__(self, key: str, threshold: float, mode: Mode = "auto", trigger: Any = (1, "epoch")) -> None:
        owner = type(self).__name__
        self.key = key
        self.threshold = check_real(threshold, "threshold", owner)
        self.mode = check_mode(mode, key, owner)
        self.parts = [get_trigger(trigger)]
        self._mean = ObservedMean(key, owner)
        self._reached_with: float | None = None

    @property
    def stopped(self) -> bool:
        """Whether the threshold has been reached."""
        return self._reached_with is not None

    def __call__(self, trainer: TrainerView) -> bool:
        self._mean.take(trainer.observation)
        if ask_together(self.parts[0], trainer):
            mean = self._mean.take_mean(group_of(trainer))
            if mean is not None and self._reached_with is None and self._reaches(mean):
                self._reached_with = mean
        return self._reached_with is not None

    def _reaches(self, value: float) -> bool:
        return value <= self.threshold if self.mode == "min" else value >= self.threshold  # false for NaN

    def initialize(self, trainer: TrainerView) -> None:
        """Initialize the inner trigger."""
        self._mean.initialize(group_of(trainer))
        initialize_part(self.parts[0], trainer)

    def state_dict(self) -> dict[str, Any]:
        """``reached_with``: the mean that has reached the threshold; the sums since; the inner trigger's state."""
        return {
            "format": _FORMAT,
            "kind": "threshold",
            "key": self.key,
            "mode": self.mode,
            "reached_with": self._reached_with,
            "interval": self._mean.state_dict(),
            "trigger": part_state(self.parts[0]),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved memory, if it is one of a threshold for the same value; else start fresh."""
        if not fits(state, repr(self), version=_FORMAT, kind="threshold", key=self.key, mode=self.mode):
            return
        reached = state["reached_with"]
        self._reached_with = float(reached) if reached is not None and self._reaches(float(reached)) else None
        self._mean.load_state_dict(state["interval"])
        load_part(self.parts[0], state.get("trigger"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key!r}, {self.threshold}, {self.mode!r}, {shown(self.parts[0])})"
