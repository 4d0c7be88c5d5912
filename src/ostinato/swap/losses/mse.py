"""``mse``: mean squared error."""

from __future__ import annotations

from torch import Tensor

from ostinato.swap.losses.image_loss import ImageLoss


class MeanSquared(ImageLoss):
    """(P - T)^2, element by element: 0..1 for pictures in 0..1. Any size. Large mistakes count most.

    Memory of a step: one map kept, 6 at the highest.
    """

    name = "mse"

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N, C, H, W)."""
        return (prediction - target).square()
