"""``laploss``: differences of Laplacian pyramids."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional

from ostinato.swap.losses.image_loss import AxisMatrices, ImageLoss

LEVELS = 5
RADIUS = 2
SIGMA = 1.0


def blur_matrix(length: int) -> Tensor:
    """The Gaussian of five pixels along an axis, border repeated, as a matrix (length, length), float32."""
    weights = [math.exp(-(offset**2) / (2 * SIGMA**2)) for offset in range(-RADIUS, RADIUS + 1)]
    matrix = torch.zeros(length, length, dtype=torch.float64)
    for row in range(length):
        for offset, weight in zip(range(-RADIUS, RADIUS + 1), weights, strict=True):
            matrix[row, min(max(row + offset, 0), length - 1)] += weight / sum(weights)
    return matrix.float()


class LaplacianPyramid(ImageLoss):
    """Differences of details of six sizes, element by element. At least 32 x 32 pixels.

    A pyramid of a picture I: five times, level = I - blur(I), and I becomes blur(I) averaged over squares of 2 x 2
    pixels; what remains is the sixth level. The blur is a Gaussian of 5 x 5 pixels with a standard deviation of 1 and
    the border repeated::

        loss = sum over k = 0..5 of 4^-k |level_k(P) - level_k(T)|

    levels enlarged to the size of the picture (bilinear). Fine details weigh most: a change of brightness costs only a
    thousandth of its size. Known from Bojanowski et al. (2018, "Optimizing the Latent Space of Generative Networks",
    section 3.3), which weighs the levels the other way round.

    Memory of a step: three maps kept, 17 at the highest.
    """

    name = "laploss"
    smallest = 2**LEVELS

    def __init__(self, lengths: Iterable[int]) -> None:
        super().__init__(lengths)
        self.blurs = AxisMatrices(blur_matrix, {length >> level for length in self.lengths for level in range(LEVELS)})

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N, C, H, W)."""
        # A pyramid is linear: the levels' difference is the pyramid of the difference.
        rest = prediction - target
        size = rest.shape[-2:]
        loss = None
        for level in range(LEVELS):
            height, width = rest.shape[-2:]
            blurred = torch.matmul(torch.matmul(self.blurs(height), rest), self.blurs(width).t())
            part = _enlarged((rest - blurred).abs() * 0.25**level, size)
            loss = part if loss is None else loss + part
            rest = functional.avg_pool2d(blurred, 2)
        assert loss is not None
        return loss + _enlarged(rest.abs() * 0.25**LEVELS, size)


def _enlarged(level: Tensor, size: torch.Size) -> Tensor:
    if level.shape[-2:] == size:
        return level
    return functional.interpolate(level, size=size, mode="bilinear", align_corners=False)
