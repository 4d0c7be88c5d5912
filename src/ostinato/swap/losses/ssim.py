"""``ssim``: structural dissimilarity, as a map (Wang et al., 2004)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from ostinato.errors import ArgumentValueError
from ostinato.swap.losses.image_loss import AxisMatrices, ImageLoss

WINDOW = 11
SIGMA = 1.5
C1 = 0.01**2
C2 = 0.03**2


def window_matrix(size: int, window: int = WINDOW) -> Tensor:
    """The Gaussian window along one axis, as a matrix (size, size), float32.

    Row i holds the weights with which the pixels of the axis enter the average at i. Pixels beyond the border are the
    mirrored ones, border not repeated, and are added to the ones they mirror. Since the two-dimensional window is the
    product of two of these, the average of a picture X is ``A @ X @ A.T``.

    :param size: length of the axis, more than half the window.
    :param window: width of the window, odd.
    :raises ArgumentValueError: the axis is too short to be mirrored.
    """
    radius = window // 2
    if size <= radius:
        raise ArgumentValueError(
            f"ssim needs pictures of at least {radius + 1} x {radius + 1} pixels, and these have {size}.",
            advice="Choose another loss function for this size.",
            size=size,
        )
    weights = [math.exp(-(offset**2) / (2 * SIGMA**2)) for offset in range(-radius, radius + 1)]
    total = sum(weights)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for row in range(size):
        for offset, weight in zip(range(-radius, radius + 1), weights, strict=True):
            column = abs(row + offset)
            if column >= size:
                column = 2 * (size - 1) - column
            matrix[row, column] += weight / total
    return matrix.float()


class Ssim(ImageLoss):
    """1 - SSIM at every pixel (eq. 13). At least 6 x 6 pixels, since the border is mirrored.

    With E the average in a Gaussian window of 11 x 11 pixels (standard deviation 1.5), m0 = E[T] and m1 = E[P]::

        l  = (2 m0 m1 + 0.01^2) / (m0^2 + m1^2 + 0.01^2)
        cs = (2 E[TP] - 2 m0 m1 + 0.03^2) / (max(E[T^2 + P^2] - m0^2 - m1^2, 0) + 0.03^2)
        loss = 1 - l cs

    The maximum only guards against rounding. Values lie in 0..2; above 1 where the pictures are correlated negatively.

    Memory of a step: seven maps kept, 38 at the highest.
    """

    name = "ssim"
    smallest = WINDOW // 2 + 1

    def __init__(self, lengths: Iterable[int]) -> None:
        super().__init__(lengths)
        self.windows = AxisMatrices(window_matrix, self.lengths)

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N, C, H, W)."""
        return ssim_map(target, prediction, *(self.windows(length) for length in target.shape[-2:]))


def ssim_map(target: Tensor, prediction: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """1 - l cs at every pixel; arguments as those of :func:`similarity_map`."""
    return 1 - similarity_map(target, prediction, rows, columns)


def similarity_map(
    target: Tensor, prediction: Tensor, rows: Tensor, columns: Tensor, *, luminance: bool = True
) -> Tensor:
    """l cs at every pixel, or cs alone.

    :param target: T, (N, C, H, W), 0..1, float32 or float64. No gradient flows to it.
    :param prediction: P, of the same shape.
    :param rows: :func:`window_matrix` of H, in the same dtype.
    :param columns: :func:`window_matrix` of W.
    :param luminance: False: without the factor l.
    :returns: (N, C, H, W).
    """
    return _Similarity.apply(target.contiguous(), prediction.contiguous(), rows, columns, luminance)


class _Similarity(torch.autograd.Function):
    """Written by hand because the chain of some thirty small operations costs several times what its arithmetic does.

    The three averages that depend on P are m1, e = E[TP] and s = E[T^2 + P^2]. With A = l's and B = cs' denominator,
    and u = 1 where the maximum took its first argument, else 0::

        d(l cs)/d m1 = cs (2 m0 - 2 m1 l) / A + l (2 m1 cs u - 2 m0) / B
        d(l cs)/d e  = 2 l / B
        d(l cs)/d s  = -l cs u / B

    and, E being linear with the transposed E': grad P = E'[g_m1] + T E'[g_e] + 2 P E'[g_s]. Without l, it is 1 and its
    derivative, the first term, 0.
    """

    @staticmethod
    def forward(ctx, target: Tensor, prediction: Tensor, rows: Tensor, columns: Tensor, luminance: bool) -> Tensor:
        stacked = torch.stack(
            (target, prediction, target * prediction, torch.addcmul(target * target, prediction, prediction))
        )
        m0, m1, e, s = torch.matmul(torch.matmul(rows, stacked), columns.t())
        product = m0 * m1
        squares = torch.addcmul(m0 * m0, m1, m1)
        variance = s.sub_(squares)
        denominator_cs = variance.clamp(min=0).add_(C2)
        contrast = e.sub_(product).mul_(2).add_(C2).div_(denominator_cs)
        lum, denominator_l = None, None
        if luminance:
            denominator_l = squares.add_(C1)
            lum = product.mul_(2).add_(C1).div_(denominator_l)
        ctx.save_for_backward(
            target, prediction, rows, columns, m0, m1, lum, contrast, denominator_l, denominator_cs, variance > 0
        )
        return contrast.clone() if lum is None else lum * contrast

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[override]
        target, prediction, rows, columns, m0, m1, lum, con, den_l, den_cs, unclamped = ctx.saved_tensors
        by_e = (gradient if lum is None else gradient * lum) * 2 / den_cs
        by_s = by_e * con * unclamped * -0.5
        by_m1 = by_e * m0 + 2 * by_s * m1
        if lum is None:
            by_m1 = by_m1.neg_()
        else:
            by_m1 = gradient * con * (m0 - m1 * lum) * 2 / den_l - by_m1
        stacked = torch.stack((by_m1, by_e, by_s))
        of_m1, of_e, of_s = torch.matmul(torch.matmul(rows.t(), stacked), columns)
        return None, of_m1.addcmul_(target, of_e).addcmul_(prediction, of_s, value=2), None, None, None
