"""``logcosh``: the logarithm of the hyperbolic cosine of the difference."""

from __future__ import annotations

import torch
from torch import Tensor

from ostinato.swap.losses.image_loss import ImageLoss


class LogCosh(ImageLoss):
    """log(cosh(P - T)), element by element: 0..0.434 for pictures in 0..1. Any size.

    Half the square for small differences, and the absolute value less ln 2 for large ones.

    Memory of a step: one map kept, 5 at the highest.
    """

    name = "logcosh"

    def forward(self, target: Tensor, prediction: Tensor) -> Tensor:
        """Returns (N, C, H, W)."""
        return _LogCosh.apply(prediction - target)


class _LogCosh(torch.autograd.Function):
    """With a = |d|: log(cosh d) = a + log((1 + exp(-2a)) / 2) = a + log1p(expm1(-2a) / 2); the derivative is tanh d.

    The usual d + softplus(-2d) - ln 2 is the same, and off by the rounding of ln 2 where d is small.
    """

    @staticmethod
    def forward(ctx, difference: Tensor) -> Tensor:
        ctx.save_for_backward(difference)
        size = difference.abs()
        return (size * -2).expm1_().mul_(0.5).log1p_().add_(size)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[override]
        (difference,) = ctx.saved_tensors
        return gradient * difference.tanh()
