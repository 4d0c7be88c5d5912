"""``ms_ssim``: structural dissimilarity on five scales, as a map (Wang, Simoncelli and Bovik, 2003)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional

from ostinato.swap.losses.image_loss import AxisMatrices, ImageLoss
from ostinato.swap.losses.ssim import WINDOW, similarity_map, window_matrix

EXPONENTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
TINY = 1e-30
"""Below this, a factor counts as 0 for the gradient, which would leave the range of float32."""
FULL_SIZE = WINDOW << (len(EXPONENTS) - 1)

_log = logging.getLogger(__name__)


def window_for(size: int) -> int:
    """The width of the window for pictures whose smaller side has this many pixels.

    It must fit into the coarsest scale: 11 from 176 pixels on, 9 from 144, 7 from 112, 5 from 80 and 3 from 48 on.
    """
    coarsest = size >> (len(EXPONENTS) - 1)
    return min(WINDOW, coarsest - (coarsest % 2 == 0))


class MultiScaleSsim(ImageLoss):
    """1 - the product of SSIM's parts on five scales, at every pixel. At least 48 x 48 pixels.

    With cs_k and l_k as in ``ssim`` on scale k, where scale 0 is the picture and each next one is averaged over squares
    of 2 x 2 pixels (an odd last row or column is repeated first), every map enlarged to the size of the picture
    (bilinear)::

        loss = 1 - max(l_4 cs_4, 0)^p_4  product over k = 0..3 of max(cs_k, 0)^p_k
        p    = 0.0448, 0.2856, 0.3001, 0.2363, 0.1333

    (eq. 7 with the paper's exponents.) The paper multiplies averages over the picture; multiplying maps leaves a loss
    for every pixel, which masks can weigh. 0..1. Where structure is opposite on some scale the loss is 1 and has no
    gradient; close to that the gradient is very large.

    Pictures below 176 pixels get a smaller window, the same for all outputs, chosen by the smallest. ``ssim`` is then
    the better choice, and a warning says so.

    Memory of a step: 14 maps kept, 50 at the highest.

    :raises ArgumentValueError: a picture is smaller than 48 pixels.
    """

    name = "ms_ssim"
    smallest = 48
    for_smaller = "ssim"

    def __init__(self, lengths: Iterable[int]) -> None:
        super().__init__(lengths)
        window = window_for(self.lengths[0]) if self.lengths else WINDOW
        if window < WINDOW:
            _log.warning(
                "ms_ssim compares pictures of %d pixels with a window of %d pixels instead of %d; below %d pixels, "
                "ssim is the better choice.",
                self.lengths[0],
                window,
                WINDOW,
                FULL_SIZE,
            )
        # Odd lengths are rounded up when they are halved.
        scaled = {-(-length // 2**scale) for length in self.lengths for scale in range(len(EXPONENTS))}
        self.windows = AxisMatrices(lambda length: window_matrix(length, window), scaled)

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N, C, H, W)."""
        size = target.shape[-2:]
        maps = []
        for scale in range(len(EXPONENTS)):
            if scale:
                target, prediction = _halved(target), _halved(prediction)
            rows, columns = (self.windows(length) for length in target.shape[-2:])
            last = scale == len(EXPONENTS) - 1
            part = similarity_map(target, prediction, rows, columns, luminance=last)
            if scale:
                part = functional.interpolate(part, size=size, mode="bilinear", align_corners=False)
            maps.append(part)
        return 1 - power_product(*maps)


def _halved(pictures: Tensor) -> Tensor:
    height, width = pictures.shape[-2:]
    if height % 2 or width % 2:
        pictures = functional.pad(pictures, (0, width % 2, 0, height % 2), mode="replicate")
    return functional.avg_pool2d(pictures, 2)


def power_product(*maps: Tensor) -> Tensor:
    """The product of max(x_k, 0)^p_k over the five scales, of the shape of each map; gradients are always finite."""
    return _PowerProduct.apply(*maps)


class _PowerProduct(torch.autograd.Function):
    """Q = product of max(x_k, 0)^p_k; dQ/dx_k = p_k Q / x_k where x_k > 0 (TINY, in fact), and 0 elsewhere.

    Left to itself, the chain gives infinity times zero where an x_k is 0.
    """

    @staticmethod
    def forward(ctx, *maps: Tensor) -> Tensor:
        product = torch.ones_like(maps[0])
        for part, exponent in zip(maps, EXPONENTS, strict=True):
            product.mul_(part.clamp(min=0).pow_(exponent))
        ctx.save_for_backward(product, *maps)
        return product

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[override]
        product, *maps = ctx.saved_tensors
        scaled = gradient * product
        return tuple(
            torch.where(part > TINY, scaled * exponent / part, 0.0)
            for part, exponent in zip(maps, EXPONENTS, strict=True)
        )
