"""What a swap model is told to get right."""

from __future__ import annotations

from ostinato.swap.losses.swap_loss import SideLoss, SwapLoss, loss_names

__all__ = ["SideLoss", "SwapLoss", "loss_names"]
