"""``pixel_gradient_diff``: compares how pictures change from pixel to pixel."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ostinato.swap.losses.image_loss import ImageLoss

ALPHA = 1.9999
BETA = 1 / 255
_REST = 2 - ALPHA


class PixelGradientDifference(ImageLoss):
    """Differences of first and second derivatives along width and height, element by element. At least 2 x 2 pixels.

    With D = P - T, border pixels repeated, and x along the width, y along the height::

        D_x  = (D[x+1] - D[x-1]) / 2          D_xx = D[x+1] - 2 D[x] + D[x-1]
        D_xy = (D[y+1,x+1] - D[y+1,x-1] - D[y-1,x+1] + D[y-1,x-1]) / 4
        loss = (r(D_x) + r(D_y) + r(D_xx) + r(D_yy) + 2 r(D_xy)) / 2

    where r is the general robust loss (Barron, 2019, eq. 1) at alpha = 1.9999 and scale b = 1/255, times b, which is
    r(d) = 127.5 d^2 but for a few thousandths. Values are large: a step from black to white costs more than 100.

    Memory of a step: six maps kept, 22 at the highest.
    """

    name = "pixel_gradient_diff"
    smallest = 2

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N, C, H, W)."""
        # The derivatives are linear, so those of the difference are the differences of the derivatives.
        padded = functional.pad(prediction - target, (1, 1, 1, 1), mode="replicate")
        rows = padded[..., 1:-1]
        columns = padded[..., 1:-1, :]
        middle = padded[..., 1:-1, 1:-1]
        along_y = (rows[..., 2:, :] - rows[..., :-2, :]) / 2
        along_x = (columns[..., 2:] - columns[..., :-2]) / 2
        twice_y = rows[..., 2:, :] + rows[..., :-2, :] - 2 * middle
        twice_x = columns[..., 2:] + columns[..., :-2] - 2 * middle
        slopes = padded[..., 2:, :] - padded[..., :-2, :]
        mixed = (slopes[..., 2:] - slopes[..., :-2]) / 4
        return _RobustSum.apply(along_x, along_y, twice_x, twice_y, mixed)


class _RobustSum(torch.autograd.Function):
    """The sum over the derivatives; written by hand so that nothing but the derivatives is kept.

    With c = 2 - alpha::

        r(d)  = b c / alpha ((d^2 / (b^2 c) + 1)^(alpha / 2) - 1)
        r'(d) = d / b (d^2 / (b^2 c) + 1)^(alpha / 2 - 1)
    """

    FACTORS = (0.5, 0.5, 0.5, 0.5, 1.0)

    @staticmethod
    def forward(ctx, *derivatives: Tensor) -> Tensor:
        ctx.save_for_backward(*derivatives)
        total = torch.zeros_like(derivatives[0])
        for derivative, factor in zip(derivatives, _RobustSum.FACTORS, strict=True):
            powers = _scaled(derivative).pow_(ALPHA / 2).sub_(1)
            total.add_(powers, alpha=factor * BETA * _REST / ALPHA)
        return total

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[override]
        return tuple(
            _scaled(derivative).pow_(ALPHA / 2 - 1).mul_(derivative).mul_(gradient).mul_(factor / BETA)
            for derivative, factor in zip(ctx.saved_tensors, _RobustSum.FACTORS, strict=True)
        )


def _scaled(derivative: Tensor) -> Tensor:
    return derivative.square().mul_(1 / (BETA**2 * _REST)).add_(1)
