"""Fires when an observed value is better than ever before."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ostinato.errors import ArgumentTypeError
from ostinato.loop.triggers.get_trigger import get_trigger
from ostinato.loop.triggers.observed_mean import ObservedMean
from ostinato.loop.triggers.parts import ask_together, group_of, initialize_part, load_part, part_state, shown
from ostinato.loop.triggers.saved_memory import fits
from ostinato.loop.triggers.trigger import Trigger

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView

_FORMAT = 1


class BestValueTrigger(Trigger):
    """Fires when the mean of a value over an interval is better than all means before.

    Every iteration's value counts, also those between two checks; a pair (value, weight) counts with its weight. The
    first mean fires; an equal one does not; NaN neither fires nor becomes the best; an interval without a value does
    not fire. With several ranks it is the weighted mean over all of them, exchanged only when ``trigger`` fires.

    :param key: the observed value, such as ``"validation/loss"``.
    :param compare: called with the best mean so far and the new one; whether the new one is better.
    :param trigger: when the mean is compared, as :func:`get_trigger` reads it; a new interval starts then.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: for an empty key and a bad text, unit or number.
    """

    decided = "ranks"

    def __init__(self, key: str, compare: Callable[[float, float], bool], trigger: Any = (1, "epoch")) -> None:
        owner = type(self).__name__
        if not callable(compare):
            raise ArgumentTypeError(
                f"{owner}: compare must be a function of the best value and the new one, not {compare!r}.",
                value=compare,
            )
        self.key = key
        self._mean = ObservedMean(key, owner)
        self._compare = compare
        self.parts = [get_trigger(trigger)]
        self._best: float | None = None

    @property
    def best(self) -> float | None:
        """The best mean so far; ``None`` before the first one."""
        return self._best

    def __call__(self, trainer: TrainerView) -> bool:
        self._mean.take(trainer.observation)
        if not ask_together(self.parts[0], trainer):
            return False
        mean = self._mean.take_mean(group_of(trainer))
        if mean is None or math.isnan(mean):
            return False
        if self._best is not None and not self._compare(self._best, mean):
            return False
        self._best = mean
        return True

    def initialize(self, trainer: TrainerView) -> None:
        """Initialize the inner trigger."""
        self._mean.initialize(group_of(trainer))
        initialize_part(self.parts[0], trainer)

    def state_dict(self) -> dict[str, Any]:
        """``best``, the sums of the interval so far, and the state of the inner trigger."""
        return {
            "format": _FORMAT,
            "kind": type(self).__name__,
            "key": self.key,
            "best": self._best,
            "interval": self._mean.state_dict(),
            "trigger": part_state(self.parts[0]),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved memory, if it is one of this kind of trigger and of this key; else start fresh."""
        if not fits(state, repr(self), version=_FORMAT, kind=type(self).__name__, key=self.key):
            return
        best = state["best"]
        self._best = None if best is None else float(best)
        self._mean.load_state_dict(state["interval"])
        load_part(self.parts[0], state.get("trigger"))

    def __repr__(self) -> str:
        compare = f", {shown(self._compare)}" if type(self) is BestValueTrigger else ""
        return f"{type(self).__name__}({self.key!r}{compare}, {shown(self.parts[0])})"


class MinValueTrigger(BestValueTrigger):
    """Fires when the mean of a value over an interval is smaller than ever; see :class:`BestValueTrigger`."""

    def __init__(self, key: str, trigger: Any = (1, "epoch")) -> None:
        super().__init__(key, _is_smaller, trigger)


class MaxValueTrigger(BestValueTrigger):
    """Fires when the mean of a value over an interval is greater than ever; see :class:`BestValueTrigger`."""

    def __init__(self, key: str, trigger: Any = (1, "epoch")) -> None:
        super().__init__(key, _is_greater, trigger)


def _is_smaller(best: float, new: float) -> bool:
    return new < best


def _is_greater(best: float, new: float) -> bool:
    return new > best
