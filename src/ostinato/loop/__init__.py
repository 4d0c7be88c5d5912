"""The loop: it only loops. What else happens is an extension, when it happens is a trigger."""

from ostinato.loop.adversarial import adversarial_parts
from ostinato.loop.extension import (
    PRIORITY_EDITOR,
    PRIORITY_READER,
    PRIORITY_SNAPSHOT,
    PRIORITY_WRITER,
    Extension,
    make_extension,
)
from ostinato.loop.part import Part
from ostinato.loop.parts_updater import PartsUpdater
from ostinato.loop.protocols import TrainerView, Updater
from ostinato.loop.random_state import capture_random_state, restore_random_state, seed_random_state
from ostinato.loop.reporter import is_scalar, read_scalars, report, scope
from ostinato.loop.standard_updater import StandardUpdater
from ostinato.loop.summary import DictSummary, Summary
from ostinato.loop.trainer import Trainer
from ostinato.loop.triggers import (
    AllTrigger,
    AnyTrigger,
    BestValueTrigger,
    BoundaryTrigger,
    EarlyStoppingTrigger,
    FunctionTrigger,
    IntervalTrigger,
    LimitTrigger,
    ManualScheduleTrigger,
    MaxValueTrigger,
    MinValueTrigger,
    OnceTrigger,
    ThresholdTrigger,
    TimeTrigger,
    Trigger,
    from_counters,
    get_trigger,
)
from ostinato.loop.turn import Turn
from ostinato.loop.updater_state import UpdaterState

__all__ = [
    "PRIORITY_EDITOR",
    "PRIORITY_READER",
    "PRIORITY_SNAPSHOT",
    "PRIORITY_WRITER",
    "AllTrigger",
    "AnyTrigger",
    "BestValueTrigger",
    "BoundaryTrigger",
    "DictSummary",
    "EarlyStoppingTrigger",
    "Extension",
    "FunctionTrigger",
    "IntervalTrigger",
    "LimitTrigger",
    "ManualScheduleTrigger",
    "MaxValueTrigger",
    "MinValueTrigger",
    "OnceTrigger",
    "Part",
    "PartsUpdater",
    "StandardUpdater",
    "Summary",
    "ThresholdTrigger",
    "TimeTrigger",
    "Trainer",
    "TrainerView",
    "Trigger",
    "Turn",
    "Updater",
    "UpdaterState",
    "adversarial_parts",
    "capture_random_state",
    "from_counters",
    "get_trigger",
    "is_scalar",
    "make_extension",
    "read_scalars",
    "report",
    "restore_random_state",
    "scope",
    "seed_random_state",
]
