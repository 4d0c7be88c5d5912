"""The names that a misspelt name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Advise on a name that is not known: the nearest known ones, nearest first, or all where none is near."""
    names = sorted(known)
    by_lower = {each.lower(): each for each in names}
    meant = [by_lower[each] for each in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)]
    if meant:
        return f"Did you mean {' or '.join(repr(each) for each in meant)}?"
    return f"Known are: {', '.join(names)}." if names else "No name is known here."
