"""Triggers: when something is done. One trigger a file."""

from ostinato.loop.triggers.boundary_trigger import BoundaryTrigger
from ostinato.loop.triggers.combined import AllTrigger, AnyTrigger
from ostinato.loop.triggers.get_trigger import get_stop_trigger, get_trigger
from ostinato.loop.triggers.interval_trigger import IntervalTrigger
from ostinato.loop.triggers.limit_trigger import LimitTrigger
from ostinato.loop.triggers.once_trigger import OnceTrigger
from ostinato.loop.triggers.time_text import parse_time
from ostinato.loop.triggers.time_trigger import TimeTrigger
from ostinato.loop.triggers.trigger import Decided, Trigger, decided_by, from_counters, never

__all__ = [
    "AllTrigger",
    "AnyTrigger",
    "BoundaryTrigger",
    "Decided",
    "IntervalTrigger",
    "LimitTrigger",
    "OnceTrigger",
    "TimeTrigger",
    "Trigger",
    "decided_by",
    "from_counters",
    "get_stop_trigger",
    "get_trigger",
    "never",
    "parse_time",
]
