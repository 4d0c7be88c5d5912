"""The names that a misspelt name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Advise on a name that is not known: the nearest known ones, or all where none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name.lower(), [each.lower() for each in names], n=3, cutoff=0.6)
    meant = [each for each in names if each.lower() in near]
    if meant:
        return f"Did you mean {' or '.join(repr(each) for each in meant)}?"
    return f"Known are: {', '.join(names)}." if names else "No name is known here."
