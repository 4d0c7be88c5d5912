"""Batch normalisation over the parts of a batch that all ranks have, on any device."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn.modules.batchnorm import _BatchNorm

from ostinato.errors import ArgumentValueError


class SynchronisedNorm(_BatchNorm):
    """A batch norm that, in training, takes its mean and variance over the images of all ranks.

    The same parameters, buffers and state names as ``BatchNorm1d`` and ``BatchNorm2d``; in evaluation the same numbers.
    Two small collectives in each pass, one forward and one backward: 2C + 1 and 2C numbers. torch's own module does the
    same on CUDA alone. Statistics are computed in float32, or float64 for such input.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ArgumentValueError(f"A batch norm takes at least 2 dimensions, not {input.dim()}.")

    def forward(self, input: Tensor) -> Tensor:
        """Normalise. A collective in training."""
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        values, mean, variance, count = _Normalised.apply(input, self.weight, self.bias, self.eps)
        if self.running_mean is not None and self.running_var is not None and self.momentum is not None:
            with torch.no_grad():
                unbiased = variance * (count / (count - 1).clamp(min=1))
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
                if self.num_batches_tracked is not None:
                    self.num_batches_tracked.add_(1)
        return values


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        dtype = torch.float64 if input.dtype == torch.float64 else torch.float32
        values = input.to(dtype)
        axes = [0, *range(2, values.dim())]
        count = values.numel() // values.shape[1]
        # Means and squares about them, not sums of squares: those would cancel for channels far from zero.
        mean = values.mean(axes) if count else values.new_zeros(values.shape[1])
        squares = (values - _wide(mean, values)).square().sum(axes)
        mine = torch.cat([mean, squares, mean.new_full((1,), count)])
        parts = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(parts, mine)
        table = torch.stack(parts)
        means, all_squares, counts = table[:, : len(mean)], table[:, len(mean) : -1], table[:, -1:]
        total = counts.sum()
        mean = (means * counts).sum(0) / total
        variance = (all_squares + counts * (means - mean).square()).sum(0) / total
        inverse = (variance + eps).rsqrt()
        ctx.save_for_backward(values, weight, mean, inverse, total)
        ctx.dtype = input.dtype
        result = (values - _wide(mean, values)) * _wide(inverse, values)
        if weight is not None:
            result = result * _wide(weight.to(dtype), values)
        if bias is not None:
            result = result + _wide(bias.to(dtype), values)
        ctx.mark_non_differentiable(mean, variance, total)
        return result.to(input.dtype), mean, variance, total

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Any) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        values, weight, mean, inverse, total = ctx.saved_tensors  # pyrefly: ignore
        gradient = gradients[0].to(values.dtype)
        axes = [0, *range(2, values.dim())]
        normalised = (values - _wide(mean, values)) * _wide(inverse, values)
        sums = torch.cat([gradient.sum(axes), (gradient * normalised).sum(axes)])
        own_bias, own_weight = sums.chunk(2)  # a rank's own share: the gradients of parameters are summed later
        everywhere = sums.clone()
        torch.distributed.all_reduce(everywhere)
        of_bias, of_weight = (everywhere / total).chunk(2)
        scale = inverse if weight is None else inverse * weight.to(values.dtype)
        onward = _wide(scale, values) * (gradient - _wide(of_bias, values) - normalised * _wide(of_weight, values))
        if weight is None:
            return onward.to(ctx.dtype), None, None, None  # pyrefly: ignore
        return onward.to(ctx.dtype), own_weight.to(weight.dtype), own_bias.to(weight.dtype), None  # pyrefly: ignore


def _wide(per_channel: Tensor, like: Tensor) -> Tensor:
    return per_channel.view(1, -1, *([1] * (like.dim() - 2)))


def synchronise_norms(model: nn.Module) -> int:
    """Make every batch norm of a model one that is synchronised over the ranks, in place.

    Parameters, buffers and names stay the very same.

    :return: how many there were.
    """
    found = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    for module in found:
        # The class alone changes: parameters are shared with optimizers, and their names are those of weight files.
        module.__class__ = SynchronisedNorm
    return len(found)
