"""What triggers count in, and the numbers they accept."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from numbers import Rational, Real
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView

COUNTED_UNITS = ("iteration", "epoch", "sample", "token")
"""Units that are counters of the updater; equal on all ranks and exact."""

Index = int | Fraction | float
"""The value a trigger looks at."""

# attrgetter walks the path in C; this is read by every trigger in every iteration.
_COUNTERS: dict[str, Callable[[Any], Any]] = {
    "iteration": attrgetter("updater.state.iteration"),
    "epoch": attrgetter("updater.state.epoch"),
    "sample": attrgetter("updater.state.samples"),
    "token": attrgetter("updater.state.tokens"),
    "second": attrgetter("elapsed_time"),
}


def check_unit(unit: Any, allowed: tuple[str, ...], owner: str) -> str:
    """The unit, if it is an allowed one.

    :raises ArgumentValueError: otherwise.
    """
    if not isinstance(unit, str) or unit not in allowed:
        raise ArgumentValueError(
            f"{owner}: unit is {unit!r}.", advice=f"Use one of {', '.join(allowed)}.", name="unit", value=unit
        )
    return unit


def exact_number(
    value: Any, name: str, owner: str, *, whole: bool = False, minimum: int | None = None
) -> int | Fraction:
    """A number as an exact one: a float is read as the decimal it prints as, so 0.1 is one tenth.

    :param whole: refuse what is not a whole number (2.0 is one).
    :param minimum: the least value allowed; by default every number above 0.
    :raises ArgumentTypeError: for booleans and whatever is not a real number.
    :raises ArgumentValueError: for NaN, infinities and numbers out of range.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentTypeError(f"{owner}: {name} must be a number, not {value!r}.", name=name, value=value)
    if not isinstance(value, Rational) and not math.isfinite(value):
        raise ArgumentValueError(f"{owner}: {name} must be finite, not {value!r}.", name=name, value=value)
    # str and not float: a float32 prints as the decimal that its author wrote.
    number = (
        Fraction(int(value.numerator), int(value.denominator)) if isinstance(value, Rational) else Fraction(str(value))
    )
    if number < minimum if minimum is not None else number <= 0:
        least = "above 0" if minimum is None else f"{minimum} or more"
        raise ArgumentValueError(f"{owner}: {name} must be {least}, not {value!r}.", name=name, value=value)
    if number.denominator == 1:
        return number.numerator
    if whole:
        raise ArgumentValueError(f"{owner}: {name} must be a whole number, not {value!r}.", name=name, value=value)
    return number


def index_reader(unit: str, fractional: bool) -> Callable[[Any], Any]:
    """The function that reads the index of a unit from a trainer.

    :param fractional: read the exact position within the pass and not the number of completed passes.
    """
    if unit == "epoch" and fractional:
        return _epoch_position
    return _COUNTERS[unit]


def _epoch_position(trainer: TrainerView) -> Fraction:
    position = trainer.updater.state.epoch_detail
    if position is None:
        raise StateError(
            "A fraction of an epoch was asked for, and the length of a pass is unknown.",
            advice="Count in iterations, use a whole number of epochs, or train from a loader that has a length.",
        )
    return position


def check_counted(trainer: TrainerView, unit: str, owner: str) -> None:
    """Make sure that the updater counts what a trigger looks at.

    :raises StateError: for tokens when the updater does not count them.
    """
    if unit == "token" and trainer.updater.state.tokens is None:
        raise StateError(
            f"{owner} counts tokens, and this updater does not.",
            advice="Count in iterations, epochs or samples, or set state.tokens to 0 in the updater and count there.",
        )
