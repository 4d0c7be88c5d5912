"""Swap models: native channels-first modules whose layers carry Faceswap's names."""

from __future__ import annotations

from ostinato.swap.models.build import build_model, model_names
from ostinato.swap.models.keras_weights import KerasWeight, export_keras_weights, keras_weights, load_keras_weights
from ostinato.swap.models.swap_model import InferenceModel, SwapModel

__all__ = [
    "InferenceModel",
    "KerasWeight",
    "SwapModel",
    "build_model",
    "export_keras_weights",
    "keras_weights",
    "load_keras_weights",
    "model_names",
]
