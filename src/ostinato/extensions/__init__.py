"""Extensions that any recipe can register with the trainer."""

from ostinato.extensions.evaluator import StandardEvaluator
from ostinato.extensions.fail_on_non_number import FailOnNonNumber
from ostinato.extensions.lr_scheduler import LRScheduler
from ostinato.extensions.metrics_writer import MetricsWriter
from ostinato.extensions.micro_average import MicroAverage
from ostinato.extensions.nan_guard import NanGuard
from ostinato.extensions.observe_lr import observe_lr
from ostinato.extensions.observe_value import observe_value
from ostinato.extensions.parameter_statistics import ParameterStatistics
from ostinato.extensions.presets import LoopPreset, read_preset
from ostinato.extensions.progress import Progress
from ostinato.extensions.rank_log import RankLog
from ostinato.extensions.rate_shifts import (
    ExponentialShift,
    InverseShift,
    LinearShift,
    MultistepShift,
    PolynomialShift,
    StepShift,
    WarmupShift,
)
from ostinato.extensions.recipe_presets import RecipePreset, fine_tuning, recipe_preset
from ostinato.extensions.save import Snapshot
from ostinato.extensions.signals import StopSignals
from ostinato.extensions.tensorboard_writer import TensorBoardWriter
from ostinato.extensions.throughput import Throughput

__all__ = [
    "ExponentialShift",
    "FailOnNonNumber",
    "InverseShift",
    "LRScheduler",
    "LinearShift",
    "LoopPreset",
    "MetricsWriter",
    "MicroAverage",
    "MultistepShift",
    "NanGuard",
    "ParameterStatistics",
    "PolynomialShift",
    "Progress",
    "RankLog",
    "RecipePreset",
    "Snapshot",
    "StandardEvaluator",
    "StepShift",
    "StopSignals",
    "TensorBoardWriter",
    "Throughput",
    "WarmupShift",
    "fine_tuning",
    "observe_lr",
    "observe_value",
    "read_preset",
    "recipe_preset",
]
