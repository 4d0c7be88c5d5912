"""Fires every so many seconds of training."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ostinato.loop.triggers.boundary_trigger import BoundaryTrigger
from ostinato.loop.triggers.units import Index, exact_number

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView


class TimeTrigger(BoundaryTrigger):
    """Fires when ``trainer.elapsed_time`` has passed a multiple of the period; once, however long the gap.

    Elapsed time goes on where it stood when a run is resumed; time during which no process ran does not count.

    :param period: seconds, above 0.
    :raises ArgumentTypeError: when it is no number.
    :raises ArgumentValueError: when it is not above 0 and finite.
    """

    decided = "rank0"

    def __init__(self, period: float | Fraction) -> None:
        self.period = exact_number(period, "period", type(self).__name__)
        super().__init__("elapsed_time")

    def read_index(self, trainer: TrainerView) -> float:
        """Seconds of training so far."""
        return trainer.elapsed_time

    def __call__(self, trainer: TrainerView) -> bool:
        index = trainer.elapsed_time
        if self._baseline <= index < self._due:
            self._baseline = index
            return False
        return self._move_to(index)

    def next_boundary(self, baseline: Index) -> float:
        """The first multiple of the period after ``baseline``, in seconds."""
        exact = baseline if isinstance(baseline, int) else Fraction(str(baseline))
        number = exact // self.period + 1
        # Back to a float, because that is what the clock gives: 0.3 s then reaches the third tenth of a second. That of
        # a third of a second is a little less than a third, and already behind a base line that stands on it.
        boundary = float(number * self.period)
        return boundary if boundary > baseline else float((number + 1) * self.period)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the saved base line, unless it belongs to another trigger: only that of seconds has no unit."""
        super().load_state_dict({} if "unit" in state else state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.period})"
