"""Extensions that any recipe can register with the trainer."""

from ostinato.extensions.evaluator import StandardEvaluator
from ostinato.extensions.metrics_writer import MetricsWriter
from ostinato.extensions.nan_guard import NanGuard
from ostinato.extensions.presets import LoopPreset, read_preset
from ostinato.extensions.progress import Progress
from ostinato.extensions.recipe_presets import RecipePreset, fine_tuning, recipe_preset
from ostinato.extensions.save import Snapshot
from ostinato.extensions.signals import StopSignals
from ostinato.extensions.tensorboard_writer import TensorBoardWriter
from ostinato.extensions.throughput import Throughput

__all__ = [
    "LoopPreset",
    "MetricsWriter",
    "NanGuard",
    "Progress",
    "RecipePreset",
    "Snapshot",
    "StandardEvaluator",
    "StopSignals",
    "TensorBoardWriter",
    "Throughput",
    "fine_tuning",
    "read_preset",
    "recipe_preset",
]
