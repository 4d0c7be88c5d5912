"""Running means and deviations that do not lose digits, can be merged, and can be saved."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.loop.reporter import is_scalar

_log = logging.getLogger(__name__)


class Summary:
    """Weighted mean and population standard deviation of a stream of numbers.

    Welford's update in double precision, weighted after West (1979): with the total weight W, the mean m and the sum of
    squared distances s, a value x of weight w gives ``m' = m + (x - m) w / W'`` and ``s' = s + w (x - m)(x - m')``.
    """

    def __init__(self) -> None:
        self._weight = 0.0
        self._mean = 0.0
        self._squares = 0.0

    def add(self, value: Any, weight: Any = 1) -> None:
        """Take in one value. Reading a tensor waits for its device.

        :param weight: a number from 0 up; 0 leaves the summary as it is.
        """
        value, weight = float(value), float(weight)
        if not weight >= 0 or math.isinf(weight):
            raise ArgumentValueError(f"A weight must be a number from 0 up, not {weight!r}.", weight=weight)
        if weight == 0:
            return
        self._weight += weight
        distance = value - self._mean
        self._mean += distance * (weight / self._weight)
        self._squares += weight * distance * (value - self._mean)

    def merge(self, other: Summary) -> None:
        """Take in all that another summary has seen (Chan, Golub and LeVeque 1979)."""
        if other._weight == 0:
            return
        total = self._weight + other._weight
        distance = other._mean - self._mean
        self._mean += distance * (other._weight / total)
        self._squares += other._squares + distance * distance * (self._weight * other._weight / total)
        self._weight = total

    def compute_mean(self) -> float:
        """The mean; NaN when the total weight is 0 or any value was NaN."""
        return self._mean if self._weight > 0 else math.nan

    def make_statistics(self) -> tuple[float, float]:
        """Mean and population standard deviation; NaN when the total weight is 0 or any value was NaN."""
        if self._weight == 0:
            return math.nan, math.nan
        variance = self._squares / self._weight
        # Rounding may leave a tiny negative number; NaN has to pass through, which max() would not grant.
        return self._mean, math.sqrt(variance) if variance > 0 else variance * 0.0

    def state_dict(self) -> dict[str, float]:
        """The three sums."""
        return {"weight": self._weight, "mean": self._mean, "squares": self._squares}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Continue from saved sums."""
        self._weight = float(state["weight"])
        self._mean = float(state["mean"])
        self._squares = float(state["squares"])


class DictSummary:
    """One :class:`Summary` per name of an observation."""

    def __init__(self) -> None:
        self._summaries: dict[str, Summary] = {}
        self._warned: set[str] = set()

    def add(self, values: Mapping[str, Any]) -> None:
        """Take in the numbers of a dictionary; a pair is (value, weight).

        What is no number is left out, with one warning per name.

        :raises ArgumentTypeError: when a weight is not a number.
        """
        for name, value in values.items():
            weight: Any = 1
            if isinstance(value, tuple) and len(value) == 2:
                value, weight = value
                if not is_scalar(weight):
                    raise ArgumentTypeError(f"The weight of {name!r} must be a number, not {weight!r}.", name=name)
            if is_scalar(value):
                self._summaries.setdefault(name, Summary()).add(value, weight)
            elif name not in self._warned:
                self._warned.add(name)
                _log.warning("%r is left out of the summary: %s is not a number.", name, type(value).__name__)

    def merge(self, other: DictSummary) -> None:
        """Take in all that another one has seen."""
        for name, summary in other._summaries.items():
            self._summaries.setdefault(name, Summary()).merge(summary)

    def compute_mean(self) -> dict[str, float]:
        """The mean of every name."""
        return {name: summary.compute_mean() for name, summary in self._summaries.items()}

    def make_statistics(self) -> dict[str, float]:
        """For every name its mean, and under ``<name>.std`` its population standard deviation."""
        statistics: dict[str, float] = {}
        for name, summary in self._summaries.items():
            statistics[name], statistics[f"{name}.std"] = summary.make_statistics()
        return statistics

    def state_dict(self) -> dict[str, dict[str, float]]:
        """The sums of every name."""
        return {name: summary.state_dict() for name, summary in self._summaries.items()}

    def load_state_dict(self, state: Mapping[str, Mapping[str, float]]) -> None:
        """Continue from saved sums."""
        self._summaries = {}
        for name, sums in state.items():
            self._summaries[name] = summary = Summary()
            summary.load_state_dict(sums)
