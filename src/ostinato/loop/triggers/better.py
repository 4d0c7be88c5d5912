"""Which of two observed values is the better one."""

from __future__ import annotations

import math
from typing import Any, Literal

from ostinato.errors import ArgumentTypeError, ArgumentValueError

Mode = Literal["auto", "min", "max"]


def check_mode(mode: Any, key: Any, owner: str) -> Literal["min", "max"]:
    """Whether smaller or greater values of a key are better; ``auto``: greater for a name that contains ``accuracy``.

    :raises ArgumentValueError: for anything but ``auto``, ``min`` and ``max``.
    """
    if mode not in ("auto", "min", "max"):
        raise ArgumentValueError(
            f"{owner}: mode is {mode!r}.", advice="Use 'auto', 'min' or 'max'.", name="mode", value=mode
        )
    if mode == "auto":
        return "max" if "accuracy" in str(key) else "min"
    return mode


def check_real(value: Any, name: str, owner: str) -> float:
    """A finite number.

    :raises ArgumentTypeError: for booleans and whatever is not a real number.
    :raises ArgumentValueError: for NaN and infinities.
    """
    if isinstance(value, bool) or not hasattr(value, "__float__") or isinstance(value, str):
        raise ArgumentTypeError(f"{owner}: {name} must be a number, not {value!r}.", name=name, value=value)
    if not math.isfinite(value):
        raise ArgumentValueError(f"{owner}: {name} must be finite, not {value!r}.", name=name, value=value)
    return float(value)
