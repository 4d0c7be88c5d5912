"""Checks and phrases that several verbs share."""

from __future__ import annotations

from ostinato.errors import UsageError


def check_range(option: str, value: float, low: float | None, high: float | None) -> None:
    """Refuse a number outside of ``low`` to ``high`` (both allowed; None: no bound).

    :raises UsageError: naming the option, the value and what is allowed.
    """
    if (low is None or value >= low) and (high is None or value <= high):
        return
    if high is None:
        allowed = f"{low:,} or more"
    elif low is None:
        allowed = f"at most {high:,}"
    else:
        allowed = f"{low:,} to {high:,}"
    raise UsageError(f"{option} is {value:,}.", advice=f"Allowed is {allowed}.", option=option, value=value)
