"""Option declarations, configuration files and the differences shown on resume."""

from ostinato.config.declaration import Conflict, OptionRecord, Options, option, option_records, value_at
from ostinato.config.face import FaceOptions, MaskOptions
from ostinato.config.givens import Place, Problem, Remark
from ostinato.config.loading import AugmentationOptions, LoaderOptions
from ostinato.config.loss import LossOptions
from ostinato.config.loss_definition import loss_definition
from ostinato.config.network import ConvertOptions, InitializationOptions, ModelOptions, NetworkOptions
from ostinato.config.optimizer import OptimizerOptions
from ostinato.config.rate_finder import RateFinderOptions
from ostinato.config.reading import ReadOptions, check_together, load_options, read_options
from ostinato.config.recognition import RecognitionOptions
from ostinato.config.recovery import RecoveryOptions
from ostinato.config.rendering import render_reference, render_yaml
from ostinato.config.resuming import Change, ResumeResult, resume, to_record
from ostinato.config.swap import SwapOptions

__all__ = [
    "AugmentationOptions",
    "Change",
    "Conflict",
    "ConvertOptions",
    "FaceOptions",
    "InitializationOptions",
    "LoaderOptions",
    "LossOptions",
    "MaskOptions",
    "ModelOptions",
    "NetworkOptions",
    "OptimizerOptions",
    "OptionRecord",
    "Options",
    "Place",
    "Problem",
    "RateFinderOptions",
    "ReadOptions",
    "RecognitionOptions",
    "RecoveryOptions",
    "Remark",
    "ResumeResult",
    "SwapOptions",
    "check_together",
    "load_options",
    "loss_definition",
    "option",
    "option_records",
    "read_options",
    "render_reference",
    "render_yaml",
    "resume",
    "to_record",
    "value_at",
]
