"""``l_inf_norm``: the largest mistake of each picture."""

from __future__ import annotations

from torch import Tensor

from ostinato.swap.losses.image_loss import ImageLoss


class LargestDifference(ImageLoss):
    """The largest |P - T| of each channel, averaged over the channels: 0..1 for pictures in 0..1. Any size.

    Only the pixels that hold a maximum get a gradient; several equal ones share it evenly.

    Memory of a step: two maps kept, 7 at the highest.
    """

    name = "l_inf_norm"
    spatial = False

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N,)."""
        return (prediction - target).abs().amax((-2, -1)).mean(-1)
