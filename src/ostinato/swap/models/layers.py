"""Layers with the arithmetic of Faceswap's: where they pad, and in which order channels and pixels follow each other.

Tensors are (batch, channels, height, width). Where an order of memory shows (flatten, reshape, depth to space), it is
that of channels-last, so that weights equal Faceswap's up to a transposition.

**Turned pictures.** Keras pads a convolution of kernel 5 and stride 2 with one pixel before and two behind; torch pads
alike on both sides, and a padded copy of every input makes these layers up to a quarter slower. But torch's padding by
two, on an even length, reaches two pixels before and uses only one behind: exactly the mirror image. So the chain of
halving convolutions runs on pictures turned by 180 degrees, with kernels that are stored turned. The picture is turned
where the chain begins and turned back, a few pixels wide by then, where it ends.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ostinato.errors import ArgumentValueError
from ostinato.swap.models.matrix_convolution import LARGEST_OUTPUT, matrix_convolution

LEAKY_SLOPE = 0.1


class Convolution(nn.Conv2d):
    """A convolution that pads as Keras' ``same``, or by reflection: (B, C, H, W) to (B, K, ceil(H/s), ceil(W/s)).

    With a stride of 2 its input, output and kernel are turned by 180 degrees; see the module. With a stride of 1
    padding is the same on all sides, and nothing is turned.

    Weights are left as they come from memory: :func:`~ostinato.swap.models.initializers.initialize` fills them, from a
    generator of its own, and the global one is not disturbed.

    :param kernel: odd.
    :param reflect: mirror the picture at its border in place of zeros. Each axis must then be longer than its padding.
    :param upscale: the factor of a depth-to-space layer that follows, 1 if none does; initialisers look at it.
    """

    def __init__(
        self, inputs: int, filters: int, kernel: int, stride: int = 1, *, reflect: bool = False, upscale: int = 1
    ) -> None:
        if kernel % 2 == 0 or stride not in (1, 2):
            raise ArgumentValueError(
                f"A convolution of kernel {kernel} and stride {stride} cannot be padded alike on all sides.",
                advice="Use an odd kernel and a stride of 1 or 2.",
            )
        mode = "reflect" if reflect else "zeros"
        super().__init__(inputs, filters, kernel, stride, kernel // 2, padding_mode=mode)
        self.is_turned = stride == 2
        self.upscale = upscale

    def reset_parameters(self) -> None:
        """Do nothing; see the class."""

    def forward(self, input: Tensor) -> Tensor:
        """Convolve; the result has the memory format of the weights."""
        if self.weight.is_contiguous():
            # A channels-last input (what flatten, reshape and bytes from files lead to) would have the gradient of the
            # weights arrive in another layout than theirs, and each of them rearranged.
            input = input.contiguous()
            if self._suits_matrix_product(input):
                assert self.bias is not None
                return matrix_convolution(input, self.weight, self.bias, self.stride[0], self.kernel_size[0] // 2)
        return super().forward(input)

    def _suits_matrix_product(self, x: Tensor) -> bool:
        pixels = -(-x.shape[2] // self.stride[0]) * -(-x.shape[3] // self.stride[0])
        return (
            pixels <= LARGEST_OUTPUT
            and x.device.type == "cpu"
            and self.padding_mode == "zeros"
            and not torch.is_autocast_enabled("cpu")
        )


class Turn(nn.Module):
    """Turn a picture by 180 degrees."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to the same shape."""
        return x.flip(2, 3)


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
