"""Weighted means that do not depend on who added which value, or in which order."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.loop import is_scalar, read_scalars

_log = logging.getLogger(__name__)

_READ_AT = 256


class ExactMeans:
    """The weighted mean of every name.

    Sums are kept as fractions and rounded once, at the end. So the means over several ranks have the same bits as those
    of one process that has seen the same values.
    """

    def __init__(self) -> None:
        self._totals: dict[str, _Total] = {}
        self._unread: list[tuple[str, Any, Any]] = []  # name, value, weight; tensors stay on their devices
        self._warned: set[str] = set()

    def add(self, values: Mapping[str, Any], weight: float = 1) -> None:
        """Take in the numbers of a dictionary; a pair is (value, weight).

        What is no number is left out, with one warning per name.

        :param weight: of the values that come without.
        :raises ArgumentTypeError: when a weight is not a number.
        """
        for name, value in values.items():
            own: Any = weight
            if isinstance(value, tuple) and len(value) == 2:
                value, own = value
                if not is_scalar(own):
                    raise ArgumentTypeError(f"The weight of {name!r} must be a number, not {own!r}.", name=name)
            if is_scalar(value):
                self._unread.append((name, value, own))
            elif name not in self._warned:
                self._warned.add(name)
                _log.warning("%r is left out of the means: %s is not a number.", name, type(value).__name__)
        if len(self._unread) >= _READ_AT:
            self._read()

    def sums(self) -> dict[str, tuple[Fraction, Fraction, float]]:
        """What has been seen: for every name the sum of value times weight, of the weights, and of the values that are
        not finite."""
        self._read()
        return {name: (total.product, total.weight, total.special) for name, total in self._totals.items()}

    def add_sums(self, sums: Mapping[str, tuple[Fraction, Fraction, float]]) -> None:
        """Take in what another one has seen."""
        for name, (product, weight, special) in sums.items():
            mine = self._totals.setdefault(name, _Total())
            mine.product += product
            mine.weight += weight
            mine.special += special

    def compute(self) -> dict[str, float]:
        """The mean of every name; NaN where the total weight is 0 or any value was NaN."""
        self._read()
        return {name: total.mean() for name, total in self._totals.items()}

    def _read(self) -> None:
        unread, self._unread = self._unread, []
        numbers = iter(read_scalars([number for _, *pair in unread for number in pair]))
        for name, *_ in unread:
            value, weight = next(numbers), next(numbers)
            if not weight >= 0 or math.isinf(weight):
                raise ArgumentValueError(f"The weight of {name!r} must be a number from 0 up, not {weight!r}.")
            self._totals.setdefault(name, _Total()).add(value, weight)


class _Total:
    __slots__ = ("product", "special", "weight")

    def __init__(self) -> None:
        self.product = Fraction(0)
        self.weight = Fraction(0)
        self.special = 0.0  # the sum of the values that are not finite

    def add(self, value: float, weight: float) -> None:
        if weight == 0:
            return
        if math.isfinite(value):
            self.product += Fraction(value) * Fraction(weight)
        else:
            self.special += value
        self.weight += Fraction(weight)

    def mean(self) -> float:
        if self.weight == 0:
            return math.nan
        return self.special if self.special != 0 else float(self.product / self.weight)  # NaN differs from 0 too
