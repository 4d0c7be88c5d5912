"""Times written as text: ``"500ba"``, ``"2 ep"``, ``"30sec"``."""

from __future__ import annotations

import re
from fractions import Fraction

from ostinato.errors import ArgumentValueError

_UNITS = {
    "ba": "iteration",
    "iteration": "iteration",
    "ep": "epoch",
    "epoch": "epoch",
    "sp": "sample",
    "sample": "sample",
    "tok": "token",
    "token": "token",
    "sec": "second",
    "second": "second",
    "dur": "dur",
}
# At most three digits of exponent: a longer one would make a number that fills the memory.
_TIME = re.compile(r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([A-Za-z]+)\s*", re.ASCII)
_LONGEST = 64


def parse_time(text: str) -> tuple[Fraction, str]:
    """A time text as (number, unit).

    The number is decimal, without a sign, with an optional exponent; blanks may stand between it and the unit; letter
    case does not matter. The unit comes back as ``iteration``, ``epoch``, ``sample``, ``token``, ``second`` or ``dur``
    (a fraction of the whole training).

    :raises ArgumentValueError: for everything else, and for ``iter``, which means an update to some and a group of
        epochs to others.
    """
    match = _TIME.fullmatch(text) if len(text) <= _LONGEST else None
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        ambiguous = match is not None and match[2].lower() == "iter"
        raise ArgumentValueError(
            f"{shown!r} is not a time."
            + (" 'iter' means different things in different programs." if ambiguous else ""),
            advice="Write a number and a unit: 500ba (updates), 2ep (epochs), 10000sp (samples), 30sec, 0.1dur.",
            value=text,
        )
    return Fraction(match[1]), unit
