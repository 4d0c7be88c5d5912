"""A convolution as one matrix product, for feature maps of a few pixels on a CPU.

The CPU's convolution kernels work along the rows of a picture. With 4 x 4 pixels there are hardly any rows, and they
run at half the speed of a matrix product over all pixels of the batch at once; from 8 x 8 pixels on they are as fast.
``benchmarks/swap_update.py`` shows the difference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

LARGEST_OUTPUT = 16
"""Pixels of the output up to which the matrix product is faster."""


def matrix_convolution(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
    """The same as ``torch.nn.functional.conv2d`` with zero padding.

    :param x: (B, C, H, W).
    :param weight: (K, C, k, k), contiguous.
    :param bias: (K,).
    :returns: (B, K, H', W'). For the gradient B * H' * W' * C * k * k numbers are kept, the pixels under every window.
    """
    return _MatrixConvolution.apply(x, weight, bias, stride, padding)


class _MatrixConvolution(torch.autograd.Function):
    """With X (B*H'*W', C*k*k) the pixels under every window and W (K, C*k*k) the kernels: Y = X W' + b.

    Hence grad W = grad Y' X, grad b = the sum of grad Y's rows, grad X = grad Y W, whose entries are added up where
    windows overlap.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
        kernel = weight.shape[-1]
        windows = functional.unfold(x, kernel, padding=padding, stride=stride).transpose(1, 2)
        batch, places, depth = windows.shape
        windows = windows.reshape(batch * places, depth)
        ctx.save_for_backward(windows, weight)
        ctx.geometry = (x.shape, stride, padding)
        height = (x.shape[2] + 2 * padding - kernel) // stride + 1
        y = torch.addmm(bias, windows, weight.flatten(1).t())
        y = y.view(batch, height, places // height, -1).permute(0, 3, 1, 2)
        # A tensor of its own, so that an activation can work in place on it.
        return y.clone(memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        windows, weight = ctx.saved_tensors
        shape, stride, padding = ctx.geometry
        gradient = gradients[0].flatten(2).transpose(1, 2)
        batch, places, filters = gradient.shape
        gradient = gradient.reshape(batch * places, filters)
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_windows = (gradient @ weight.flatten(1)).view(batch, places, -1).transpose(1, 2)
            of_x = functional.fold(of_windows, shape[2:], weight.shape[-1], padding=padding, stride=stride)
        if ctx.needs_input_grad[1]:
            of_weight = (gradient.t() @ windows).view_as(weight)
        if ctx.needs_input_grad[2]:
            of_bias = gradient.sum(0)
        return of_x, of_weight, of_bias, None, None
