"""What a swap model is told to get right."""

from __future__ import annotations

from ostinato.swap.losses.image_loss import ImageLoss
from ostinato.swap.losses.lpips_weights import LpipsWeights, read_lpips_weights
from ostinato.swap.losses.names import build_loss, loss_names
from ostinato.swap.losses.swap_loss import SideLoss, SwapLoss, function_weights

__all__ = [
    "ImageLoss",
    "LpipsWeights",
    "SideLoss",
    "SwapLoss",
    "build_loss",
    "function_weights",
    "loss_names",
    "read_lpips_weights",
]
