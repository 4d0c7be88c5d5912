"""True from a limit on: what ends a run."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ostinato.loop.triggers.trigger import Trigger
from ostinato.loop.triggers.units import COUNTED_UNITS, check_counted, check_unit, counter_name, exact_number

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView


class LimitTrigger(Trigger):
    """True when a counter has reached the limit, and from then on. Remembers nothing.

    :param limit: a number above 0, whole for iterations, samples and tokens. A fraction of an epoch needs a loader with
        a length.
    :param unit: ``iteration``, ``epoch``, ``sample``, ``token`` or ``second`` (of elapsed training time).
    :raises ArgumentTypeError: when the limit is no number.
    :raises ArgumentValueError: for an unknown unit or a limit out of range.
    """

    def __init__(self, limit: float | Fraction, unit: str) -> None:
        owner = type(self).__name__
        self.unit = check_unit(unit, (*COUNTED_UNITS, "second"), owner)
        self.limit = exact_number(limit, "limit", owner, whole=unit not in ("epoch", "second"))
        self.decided = "rank0" if unit == "second" else "counters"
        self._counter = None if unit == "second" else counter_name(unit, isinstance(self.limit, Fraction))

    def __call__(self, trainer: TrainerView) -> bool:
        if self._counter is None:
            return trainer.elapsed_time >= self.limit
        return getattr(trainer.updater.state, self._counter) >= self.limit

    def initialize(self, trainer: TrainerView) -> None:
        """Check that the index can be read.

        :raises StateError: when the updater does not count in this unit, or the fraction of an epoch is unknown.
        """
        check_counted(trainer, self.unit, repr(self))
        self(trainer)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.limit}, {self.unit!r})"
