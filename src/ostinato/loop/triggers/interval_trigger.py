"""Fires every so many iterations or epochs."""

from __future__ import annotations

import math
from fractions import Fraction

from ostinato.loop.triggers.counted_boundary_trigger import CountedBoundaryTrigger
from ostinato.loop.triggers.units import COUNTED_UNITS, Index, check_unit, exact_number


class IntervalTrigger(CountedBoundaryTrigger):
    """Fires at ``period``, ``2 * period``, ... of a counter, once per boundary on any line of kills and resumes.

    :param period: a number above 0, whole for all units but ``epoch``. A float is read as the decimal it prints as. A
        fraction of an epoch needs a loader with a length.
    :param unit: ``iteration``, ``epoch``, ``sample`` or ``token``.
    :param after: only boundaries greater than this fire; a number from 0 up, whole where the period is.
    :param before: only boundaries less than this fire, a number above 0; ``None``: no such limit.
    :raises ArgumentTypeError: when a number is none.
    :raises ArgumentValueError: for an unknown unit or a number out of range.
    """

    def __init__(self, period: float | Fraction, unit: str, *, after: float = 0, before: float | None = None) -> None:
        owner = type(self).__name__
        check_unit(unit, COUNTED_UNITS, owner)
        whole = unit != "epoch"
        self.period = exact_number(period, "period", owner, whole=whole)
        self.after = exact_number(after, "after", owner, whole=whole, minimum=0)
        self.before = None if before is None else exact_number(before, "before", owner, whole=whole)
        super().__init__(unit, fractional=isinstance(self.period, Fraction))
        if self.before is None:
            self._stride = self.period

    def next_boundary(self, baseline: Index) -> Index:
        """The first multiple of the period after ``baseline`` that ``after`` and ``before`` admit."""
        start = baseline if baseline > self.after else self.after
        boundary = (start // self.period + 1) * self.period  # exact: whole numbers or fractions, never floats
        return boundary if self.before is None or boundary < self.before else math.inf

    def __repr__(self) -> str:
        limits = f", after={self.after}" if self.after else ""
        limits += f", before={self.before}" if self.before is not None else ""
        return f"{type(self).__name__}({self.period}, {self.unit!r}{limits})"
