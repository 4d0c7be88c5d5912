"""Times written as text: ``"500it"``, ``"2 ep"``, ``"30min"``."""

from __future__ import annotations

import re
from fractions import Fraction

from ostinato.errors import ArgumentValueError

# Spelling: the unit that triggers know, and how many of it one of these is.
_UNITS = {
    "it": ("iteration", 1),
    "ba": ("iteration", 1),
    "iteration": ("iteration", 1),
    "ep": ("epoch", 1),
    "epoch": ("epoch", 1),
    "sp": ("sample", 1),
    "sample": ("sample", 1),
    "tok": ("token", 1),
    "token": ("token", 1),
    "sec": ("second", 1),
    "second": ("second", 1),
    "min": ("second", 60),
    "minute": ("second", 60),
    "dur": ("dur", 1),
}
# At most three digits of exponent: a longer one would make a number that fills the memory.
_TIME = re.compile(r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([A-Za-z]+)\s*", re.ASCII)
_LONGEST = 64


def parse_time(text: str) -> tuple[Fraction, str]:
    """A time text as (number, unit).

    The number is decimal, without a sign, with an optional exponent; blanks may stand between it and the unit; letter
    case does not matter. Units: ``it``, ``ba`` or ``iteration``; ``ep`` or ``epoch``; ``sp`` or ``sample``; ``tok`` or
    ``token``; ``sec`` or ``second``; ``min`` or ``minute``; ``dur``, a fraction of the whole training. They come back
    as ``iteration``, ``epoch``, ``sample``, ``token``, ``second`` or ``dur``.

    :raises ArgumentValueError: for everything else, and for ``iter``, which means an update to some and a group of
        epochs to others.
    """
    match = _TIME.fullmatch(text) if len(text) <= _LONGEST else None
    known = _UNITS.get(match[2].lower()) if match else None
    if match is None or known is None:
        shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        ambiguous = match is not None and match[2].lower() == "iter"
        raise ArgumentValueError(
            f"{shown!r} is not a time."
            + (" 'iter' means different things in different programs." if ambiguous else ""),
            advice="Write a number and a unit: 500it (updates), 2ep (epochs), 10000sp (samples), 30sec, 30min, 0.1dur.",
            value=text,
        )
    unit, factor = known
    return Fraction(match[1]) * factor, unit
