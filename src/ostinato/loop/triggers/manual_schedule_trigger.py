"""Fires at listed points of the training."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.loop.triggers.counted_boundary_trigger import CountedBoundaryTrigger
from ostinato.loop.triggers.units import COUNTED_UNITS, Index, check_unit, exact_number


class ManualScheduleTrigger(CountedBoundaryTrigger):
    """Fires when a point lies after the index of the last call and not after the present one.

    A point that is jumped over fires at the next call; points that lie before the training started do not.

    :param points: a number above 0, or a list of such numbers in any order; whole for all units but ``epoch``.
    :param unit: ``iteration``, ``epoch``, ``sample`` or ``token``.
    :raises ArgumentTypeError: when a point is no number.
    :raises ArgumentValueError: for an unknown unit, no point at all, or a point out of range.
    """

    def __init__(self, points: float | Fraction | Sequence[float | Fraction], unit: str) -> None:
        owner = type(self).__name__
        check_unit(unit, COUNTED_UNITS, owner)
        self.points = _checked_points(points, owner, whole=unit != "epoch")
        super().__init__(unit, fractional=any(isinstance(point, Fraction) for point in self.points))

    @property
    def finished(self) -> bool:
        """Whether the last point is past, so that it will not fire again."""
        return self.points[-1] <= self._baseline < math.inf

    def next_boundary(self, baseline: Index) -> Index:
        """The first point after ``baseline``."""
        place = bisect_right(self.points, baseline)
        return self.points[place] if place < len(self.points) else math.inf

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{', '.join(map(str, self.points))}], {self.unit!r})"


def _checked_points(points: Any, owner: str, *, whole: bool) -> list[int | Fraction]:
    if isinstance(points, str | bytes | Mapping):
        raise ArgumentTypeError(
            f"{owner}: points must be a number or a list of numbers, not {points!r}.", name="points", value=points
        )
    listed = points if isinstance(points, Sequence) else [points]
    if not listed:
        raise ArgumentValueError(
            f"{owner}: points is empty.", advice="Name at least one point, or leave the trigger out.", name="points"
        )
    return sorted({exact_number(point, "points", owner, whole=whole) for point in listed})
