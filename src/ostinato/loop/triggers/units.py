"""What triggers count in, and the numbers they accept."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Rational, Real
from typing import TYPE_CHECKING, Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView

COUNTED_UNITS = ("iteration", "epoch", "sample", "token")
"""Units that are counters of the updater; equal on all ranks and exact."""

Index = int | Fraction | float
"""The value a trigger looks at."""

_COUNTERS = {"iteration": "iteration", "epoch": "epoch", "sample": "samples", "token": "tokens"}


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


def check_real(value: Any, name: str, owner: str) -> float:
    """A finite number.

    :raises ArgumentTypeError: for booleans and whatever is not a real number.
    :raises ArgumentValueError: for NaN and infinities.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentTypeError(f"{owner}: {name} must be a number, not {value!r}.", name=name, value=value)
    if not math.isfinite(value):
        raise ArgumentValueError(f"{owner}: {name} must be finite, not {value!r}.", name=name, value=value)
    return float(value)


def counter_name(unit: str, fractional: bool) -> str:
    """The attribute of :class:`~ostinato.loop.updater_state.UpdaterState` that counts in a unit.

    :param fractional: the exact position within the pass and not the number of completed passes.
    """
    return "exact_epoch" if unit == "epoch" and fractional else _COUNTERS[unit]


def check_counted(trainer: TrainerView, unit: str, owner: str) -> None:
    """Make sure that the updater counts what a trigger looks at.

    :raises StateError: for tokens when the updater does not count them.
    """
    if unit == "token" and trainer.updater.state.tokens is None:
        raise StateError(
            f"{owner} counts tokens, and this updater does not.",
            advice="Count in iterations, epochs or samples, or set state.tokens to 0 in the updater and count there.",
        )
