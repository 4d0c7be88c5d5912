"""``smooth_loss``: an absolute value that is smooth at 0 (Charbonnier)."""

from __future__ import annotations

from torch import Tensor

from ostinato.swap.losses.image_loss import ImageLoss

BETA = 1 / 255


class SmoothLoss(ImageLoss):
    """sqrt(d^2 + b^2) - b with d = P - T and b = 1/255, element by element: 0..0.9961 for pictures in 0..1. Any size.

    It is the general robust loss of Barron (2019, "A General and Adaptive Robust Loss Function", eq. 1) at alpha = 1,
    times b. Differences below one step of an 8-bit picture count by their square, larger ones as they are.

    Memory of a step: four maps kept, 14 at the highest.
    """

    name = "smooth_loss"

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N, C, H, W)."""
        square = (prediction - target).square()
        # The same as the formula, without subtracting two nearly equal numbers.
        return square / ((square + BETA**2).sqrt() + BETA)
