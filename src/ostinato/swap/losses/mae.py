"""``mae``: mean absolute error."""

from __future__ import annotations

from torch import Tensor

from ostinato.swap.losses.image_loss import ImageLoss


class MeanAbsolute(ImageLoss):
    """|P - T|, element by element: 0..1 for pictures in 0..1. Any size. All mistakes count alike.

    Memory of a step: one map kept, 5 at the highest.
    """

    name = "mae"

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N, C, H, W)."""
        return (prediction - target).abs()
