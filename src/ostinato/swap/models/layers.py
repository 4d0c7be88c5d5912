"""Layers with the arithmetic of Faceswap's: where they pad, and in which order channels and pixels follow each other.

Tensors are (batch, channels, height, width). Where an order of memory shows (flatten, reshape, depth to space), it is
that of channels-last, so that weights equal Faceswap's up to a transposition. With tensors in channels-last memory
these layers then move nothing, or whole runs of channels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ostinato.swap.models.padding import reflection_padding, same_padding

LEAKY_SLOPE = 0.1


class Convolution(nn.Conv2d):
    """A convolution that pads as Keras' ``same``, or by reflection.

    Weights are left as they come from memory: :func:`~ostinato.swap.models.initializers.initialize` fills them, from a
    generator of its own, and the global one is not disturbed.

    :param upscale: the factor of a depth-to-space layer that follows, 1 if none does; initialisers look at it.
    :param reflect: mirror the picture at its border in place of zeros. Each axis must then be longer than its padding.
    """

    def __init__(
        self, inputs: int, filters: int, kernel: int, stride: int = 1, *, reflect: bool = False, upscale: int = 1
    ) -> None:
        super().__init__(inputs, filters, kernel, stride)
        self.reflect = reflect
        self.upscale = upscale

    def reset_parameters(self) -> None:
        """Do nothing; see the class."""

    def forward(self, input: Tensor) -> Tensor:
        """Convolve (B, inputs, H, W) to (B, filters, ceil(H / stride), ceil(W / stride))."""
        x = input
        kernel, stride = self.kernel_size[0], self.stride[0]
        amount = reflection_padding if self.reflect else same_padding
        top, bottom = amount(x.shape[-2], kernel, stride)
        left, right = amount(x.shape[-1], kernel, stride)
        if self.reflect:
            x = functional.pad(x, (left, right, top, bottom), mode="reflect")
            return functional.conv2d(x, self.weight, self.bias, self.stride)
        if top == bottom and left == right:
            # The convolution itself pads; no copy of the input.
            return functional.conv2d(x, self.weight, self.bias, self.stride, (top, left))
        x = functional.pad(x, (left, right, top, bottom))
        return functional.conv2d(x, self.weight, self.bias, self.stride)


class Dense(nn.Linear):
    """A fully connected layer whose weights are left to :func:`~ostinato.swap.models.initializers.initialize`."""

    def reset_parameters(self) -> None:
        """Do nothing; see the class."""


class ChannelsLastFlatten(nn.Module):
    """(B, C, H, W) to (B, H * W * C), channels fastest."""

    def forward(self, x: Tensor) -> Tensor:
        """Free of copies for channels-last memory."""
        return x.permute(0, 2, 3, 1).flatten(1)


class ChannelsLastReshape(nn.Module):
    """(B, H * W * C), channels fastest, to (B, C, H, W)."""

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.channels = channels
        self.height = height
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        """Free of copies; the result lies in channels-last memory."""
        return x.view(-1, self.height, self.width, self.channels).permute(0, 3, 1, 2)


class PixelShuffler(nn.Module):
    """Depth to space by a factor r: ``out[c, y*r + i, x*r + j] = in[(i*r + j)*C + c, y, x]``.

    The channel is the fastest index and the place within the r x r square the slowest; torch's own ``PixelShuffle`` has
    them the other way round.
    """

    def __init__(self, scale: int = 2) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """(B, r*r*C, H, W) to (B, C, r*H, r*W), in the memory format of the input."""
        r = self.scale
        batch, depth, height, width = x.shape
        channels = depth // (r * r)
        if x.is_contiguous(memory_format=torch.channels_last):
            squares = x.permute(0, 2, 3, 1).reshape(batch, height, width, r, r * channels)
            rows = squares.transpose(2, 3).reshape(batch, height * r, width * r, channels)
            return rows.permute(0, 3, 1, 2)
        squares = x.view(batch, r, r, channels, height, width)
        return squares.permute(0, 3, 4, 1, 5, 2).reshape(batch, channels, height * r, width * r)


class SigmoidOutput(nn.Module):
    """The end of a branch: 0..1, always computed in float32, whatever autocast does before it."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to the same shape in float32."""
        return torch.sigmoid(x.float())
