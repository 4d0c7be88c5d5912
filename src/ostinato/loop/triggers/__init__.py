"""Triggers: when something is done. One trigger a file."""

from ostinato.loop.triggers.best_value_trigger import BestValueTrigger, MaxValueTrigger, MinValueTrigger
from ostinato.loop.triggers.boundary_trigger import BoundaryTrigger
from ostinato.loop.triggers.combined import AllTrigger, AnyTrigger
from ostinato.loop.triggers.early_stopping_trigger import EarlyStoppingTrigger
from ostinato.loop.triggers.function_trigger import FunctionTrigger
from ostinato.loop.triggers.get_trigger import get_stop_trigger, get_trigger
from ostinato.loop.triggers.interval_trigger import IntervalTrigger
from ostinato.loop.triggers.limit_trigger import LimitTrigger
from ostinato.loop.triggers.manual_schedule_trigger import ManualScheduleTrigger
from ostinato.loop.triggers.once_trigger import OnceTrigger
from ostinato.loop.triggers.threshold_trigger import ThresholdTrigger
from ostinato.loop.triggers.time_text import parse_time
from ostinato.loop.triggers.time_trigger import TimeTrigger
from ostinato.loop.triggers.trigger import Decided, Trigger, decided_by, from_counters, never

__all__ = [
    "AllTrigger",
    "AnyTrigger",
    "BestValueTrigger",
    "BoundaryTrigger",
    "Decided",
    "EarlyStoppingTrigger",
    "FunctionTrigger",
    "IntervalTrigger",
    "LimitTrigger",
    "ManualScheduleTrigger",
    "MaxValueTrigger",
    "MinValueTrigger",
    "OnceTrigger",
    "ThresholdTrigger",
    "TimeTrigger",
    "Trigger",
    "decided_by",
    "from_counters",
    "get_stop_trigger",
    "get_trigger",
    "never",
    "parse_time",
]
