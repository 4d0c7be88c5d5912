"""What a swap model is told to get right."""

from __future__ import annotations

from ostinato.swap.losses.image_loss import ImageLoss
from ostinato.swap.losses.names import build_loss, loss_names
from ostinato.swap.losses.swap_loss import SideLoss, SwapLoss

__all__ = ["ImageLoss", "SideLoss", "SwapLoss", "build_loss", "loss_names"]
