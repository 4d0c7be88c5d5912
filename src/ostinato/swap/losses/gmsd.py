"""``gmsd``: similarity of edges."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional

from ostinato.swap.losses.image_loss import ImageLoss

STABILITY = 0.0025
_KERNEL = (
    (0.0007, 0.0052, 0.0370, 0.0052, 0.0007),
    (0.0037, 0.1187, 0.2589, 0.1187, 0.0037),
    (0.0, 0.0, 0.0, 0.0, 0.0),
    (-0.0037, -0.1187, -0.2589, -0.1187, -0.0037),
    (-0.0007, -0.0052, -0.0370, -0.0052, -0.0007),
)


class EdgeSimilarity(ImageLoss):
    """How far edges along height and width differ. At least 3 x 3 pixels.

    With G the responses of each channel to a smoothed difference of 5 x 5 pixels along the height, and to the same
    along the width, border mirrored::

        s    = (2 G(T) G(P) + 0.0025) / (G(T)^2 + G(P)^2 + 0.0025)
        loss = 1 - mean of s over channels and both directions

    0 where edges agree, up to 2 where they are opposite; brightness does not matter. The name comes from gradient
    magnitude similarity deviation (Xue et al., 2014, eq. 4), which compares magnitudes and takes the standard deviation
    over the picture; this loss keeps the signs and gives a map.

    Memory of a step: nine maps kept, 33 at the highest.
    """

    name = "gmsd"
    smallest = 3

    def __init__(self, lengths: Iterable[int]) -> None:
        super().__init__(lengths)
        along_height = torch.tensor(_KERNEL)
        # Not state: constants.
        self.register_buffer("kernels", torch.stack((along_height, along_height.t()))[:, None], persistent=False)

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N, 1, H, W)."""
        similarity = _Similarity.apply(self._edges(target), self._edges(prediction))
        items, _, height, width = target.shape
        return 1 - similarity.view(items, -1, height, width).mean(1, keepdim=True)

    def _edges(self, pictures: Tensor) -> Tensor:
        """(N C, 2, H, W)."""
        single = functional.pad(pictures, (2, 2, 2, 2), mode="reflect").flatten(0, 1)[:, None]
        return functional.conv2d(single, self.get_buffer("kernels"))


class _Similarity(torch.autograd.Function):
    """With A and B numerator and denominator: ds/dG(P) = 2 (G(T) - s G(P)) / B."""

    @staticmethod
    def forward(ctx, of_target: Tensor, of_prediction: Tensor) -> Tensor:
        denominator = torch.addcmul(of_target.square(), of_prediction, of_prediction).add_(STABILITY)
        similarity = (of_target * of_prediction).mul_(2).add_(STABILITY).div_(denominator)
        ctx.save_for_backward(of_target, of_prediction, similarity, denominator)
        return similarity

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[override]
        of_target, of_prediction, similarity, denominator = ctx.saved_tensors
        by_prediction = torch.addcmul(of_target, similarity, of_prediction, value=-1).div_(denominator)
        return None, by_prediction.mul_(gradient).mul_(2)
