"""Option declarations, configuration files and the differences shown on resume."""

from ostinato.config.declaration import Conflict, OptionRecord, Options, option, option_records, value_at
from ostinato.config.face import FaceOptions, MaskOptions
from ostinato.config.loading import AugmentationOptions, LoaderOptions
from ostinato.config.loss import LossOptions
from ostinato.config.network import ConvertOptions, InitializationOptions, ModelOptions, NetworkOptions
from ostinato.config.optimizer import OptimizerOptions
from ostinato.config.swap import SwapOptions

__all__ = [
    "AugmentationOptions",
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
    "SwapOptions",
    "option",
    "option_records",
    "value_at",
]
