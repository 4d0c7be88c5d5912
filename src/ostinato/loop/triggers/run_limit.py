"""Where a run ends at the latest, as far as its stop trigger says so in numbers."""

from __future__ import annotations

from typing import Any

from ostinato.loop.triggers.combined import AnyTrigger
from ostinato.loop.triggers.early_stopping_trigger import EarlyStoppingTrigger
from ostinato.loop.triggers.limit_trigger import LimitTrigger


def limits_of_run(stop_trigger: Any) -> list[LimitTrigger]:
    """The limits in a stop trigger of which any one ends the run.

    Those written as limits come first, in the order written, then those inside other triggers.
    """
    if isinstance(stop_trigger, LimitTrigger):
        return [stop_trigger]
    if isinstance(stop_trigger, AnyTrigger):
        parts = sorted(stop_trigger.parts, key=lambda part: not isinstance(part, LimitTrigger))
    elif isinstance(stop_trigger, EarlyStoppingTrigger):
        parts = [stop_trigger.max_trigger]
    else:
        return []
    return [limit for part in parts for limit in limits_of_run(part)]


def limit_of_run(stop_trigger: Any) -> LimitTrigger | None:
    """The limit that stands for the whole training: of several in one unit the lowest, of several units the first."""
    limits = limits_of_run(stop_trigger)
    return min((limit for limit in limits if limit.unit == limits[0].unit), key=lambda known: known.limit, default=None)
