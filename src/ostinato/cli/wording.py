"""Checks and phrases that several verbs share."""

from __future__ import annotations

from ostinato.errors import UsageError


def check_range(option: str, value: float, low: float, high: float | None) -> None:
    """Refuse a number outside of ``low`` to ``high`` (both allowed; None: no upper bound).

    :raises UsageError: naming the option, the value and what is allowed.
    """
    if value >= low and (high is None or value <= high):
        return
    allowed = f"{low:,} or more" if high is None else f"{low:,} to {high:,}"
    raise UsageError(f"{option} is {value:,}.", advice=f"Allowed is {allowed}.", option=option, value=value)
