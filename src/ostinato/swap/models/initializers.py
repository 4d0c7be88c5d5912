"""The numbers a new model starts from.

All kernels here have torch's shape (out, in, height, width); matrices are (out, in). Every draw comes from the
generator given, on the CPU, so that a seed gives the same model on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ostinato.swap.models.layers import Convolution, Dense

Initializer = Callable[[tuple[int, ...], torch.Generator], Tensor]

CONVOLUTION_AWARE_NOISE = 0.05


def he_uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """U(-l, l) with l = sqrt(6 / fan in) (He et al., 2015)."""
    return _uniform(shape, math.sqrt(6 / math.prod(shape[1:])), generator)


def glorot_uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """U(-l, l) with l = sqrt(6 / (fan in + fan out)) (Glorot and Bengio, 2010)."""
    area = math.prod(shape[2:])
    return _uniform(shape, math.sqrt(6 / (area * (shape[0] + shape[1]))), generator)


def convolution_aware(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Kernels that are orthogonal to each other in the frequency domain (Aghajanyan, 2017, arXiv:1702.06295)."""
    seed = int(torch.randint(2**31, (), generator=generator))
    return torch.from_numpy(convolution_aware_kernel(shape, np.random.RandomState(seed)))


def icnr(initializer: Initializer, scale: int) -> Initializer:
    """Make all sub-pixels of a depth-to-space layer equal at the start (Aitken et al., 2017, arXiv:1707.02937).

    :param initializer: draws the kernel that all sub-pixels share.
    :param scale: the factor of the depth-to-space layer. In its order of channels the sub-pixel is the slowest
        index, so the small kernel is repeated as a whole.
    """

    def draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        shared = initializer((shape[0] // scale**2, *shape[1:]), generator)
        return shared.repeat(scale**2, *[1] * (len(shape) - 1))

    return draw


def initialize(
    module: nn.Module, generator: torch.Generator, *, icnr_init: bool = False, conv_aware_init: bool = False
) -> None:
    """Fill every weight of a new model: He uniform for convolutions, Glorot uniform for dense layers, biases 0.

    :param module: its layers are visited in the order in which they were added. One on the device ``meta``, which has
        shapes and no memory, is left as it is.
    :param generator: a generator on the CPU.
    :param icnr_init: start convolutions in front of a depth-to-space layer by :func:`icnr`.
    :param conv_aware_init: start all convolutions by :func:`convolution_aware`.
    """
    for layer in module.modules():
        if isinstance(layer, Convolution):
            initializer: Initializer = convolution_aware if conv_aware_init else he_uniform
            if icnr_init and layer.upscale > 1:
                initializer = icnr(initializer, layer.upscale)
        elif isinstance(layer, Dense):
            initializer = glorot_uniform
        else:
            continue
        if layer.weight.is_meta:
            continue
        with torch.no_grad():
            layer.weight.copy_(initializer(tuple(layer.weight.shape), generator))
            if layer.bias is not None:
                layer.bias.zero_()


def convolution_aware_kernel(
    shape: tuple[int, ...], random: np.random.RandomState, noise: float = CONVOLUTION_AWARE_NOISE
) -> NDArray[np.float32]:
    """Draw one convolution-aware kernel.

    Each filter's spectrum is made of rows of random orthogonal bases; its inverse transform, with a little noise
    against exact symmetry, is scaled to the variance 2 / fan in of He et al.

    :param shape: (out, in, height, width).
    :param random: the source of all draws.
    :param noise: standard deviation of the noise, before scaling.
    """
    filters, inputs, height, width = shape
    spectrum = (height, width // 2 + 1)
    size = math.prod(spectrum)
    stacks = inputs // size + 1
    if size == 1:
        basis = random.normal(0.0, noise, (filters, inputs, 1))
    else:
        draws = random.normal(size=(filters, stacks, size, size))
        diagonal = draws * np.eye(size)
        symmetric = draws + draws.swapaxes(-1, -2) - diagonal
        left = np.linalg.svd(symmetric)[0]
        basis = left.swapaxes(-1, -2).reshape(filters, stacks * size, size)[:, :inputs]
    basis = basis.astype(np.float32).reshape(filters, inputs, *spectrum)
    kernel = np.fft.irfft2(basis.astype(np.float64), (height, width))
    kernel += random.normal(0.0, noise, kernel.shape)
    kernel *= math.sqrt(2 / (inputs * height * width) / kernel.var())
    return kernel.astype(np.float32)


def _uniform(shape: tuple[int, ...], limit: float, generator: torch.Generator) -> Tensor:
    return torch.empty(shape).uniform_(-limit, limit, generator=generator)
