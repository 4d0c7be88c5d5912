"""Extensions that any recipe can register with the trainer."""

from ostinato.extensions.evaluator import StandardEvaluator
from ostinato.extensions.fail_on_non_number import FailOnNonNumber
from ostinato.extensions.log_report import LogReport
from ostinato.extensions.lr_scheduler import LRScheduler
from ostinato.extensions.memory_use import MemoryUse
from ostinato.extensions.metrics_writer import MetricsWriter
from ostinato.extensions.micro_average import MicroAverage
from ostinato.extensions.mlflow_tracker import MlflowTracker
from ostinato.extensions.nan_guard import NanGuard
from ostinato.extensions.observe_lr import observe_lr
from ostinato.extensions.observe_value import observe_value
from ostinato.extensions.parameter_statistics import ParameterStatistics
from ostinato.extensions.plot_report import PlotReport
from ostinato.extensions.presets import LoopPreset, read_preset
from ostinato.extensions.print_report import PrintReport
from ostinato.extensions.profile_report import ProfileReport
from ostinato.extensions.progress import Progress
from ostinato.extensions.progress_bar import ProgressBar
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
from ostinato.extensions.speed_monitor import SpeedMonitor
from ostinato.extensions.stack_dump import StackDump
from ostinato.extensions.tensorboard_writer import TensorBoardWriter
from ostinato.extensions.text_log import TextLog
from ostinato.extensions.torch_profiler import TorchProfiler
from ostinato.extensions.tracker import Point, RunInfo, Tracker
from ostinato.extensions.tracker_writer import TrackerWriter
from ostinato.extensions.wandb_tracker import WandbTracker

__all__ = [
    "ExponentialShift",
    "FailOnNonNumber",
    "InverseShift",
    "LRScheduler",
    "LinearShift",
    "LogReport",
    "LoopPreset",
    "MemoryUse",
    "MetricsWriter",
    "MicroAverage",
    "MlflowTracker",
    "MultistepShift",
    "NanGuard",
    "ParameterStatistics",
    "PlotReport",
    "Point",
    "PolynomialShift",
    "PrintReport",
    "ProfileReport",
    "Progress",
    "ProgressBar",
    "RankLog",
    "RecipePreset",
    "RunInfo",
    "Snapshot",
    "SpeedMonitor",
    "StackDump",
    "StandardEvaluator",
    "StepShift",
    "StopSignals",
    "TensorBoardWriter",
    "TextLog",
    "TorchProfiler",
    "Tracker",
    "TrackerWriter",
    "WandbTracker",
    "WarmupShift",
    "fine_tuning",
    "observe_lr",
    "observe_value",
    "read_preset",
    "recipe_preset",
]
