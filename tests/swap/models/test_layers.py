from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ostinato.errors import ArgumentValueError
from ostinato.swap.models.layers import (
    ChannelsLastFlatten,
    ChannelsLastReshape,
    Convolution,
    PixelShuffler,
    SigmoidOutput,
    Turn,
)


def same_padding(length: int, kernel: int, stride: int) -> tuple[int, int]:
    """Keras' rule, as the specification writes it."""
    outputs = -(-length // stride)
    total = max(0, (outputs - 1) * stride + kernel - length)
    return total // 2, total - total // 2


def reflection_padding(length: int, kernel: int, stride: int) -> tuple[int, int]:
    total = max(kernel - stride, 0) if length % stride == 0 else max(kernel - length % stride, 0)
    return total // 2, total - total // 2


def upright(layer: Convolution, x: Tensor) -> Tensor:
    """Run a layer that may be turned on pictures that are not."""
    return layer(x.flip(2, 3)).flip(2, 3) if layer.is_turned else layer(x)


def specified(layer: Convolution, x: Tensor) -> Tensor:
    """Pad by hand, then convolve without padding."""
    kernel, stride = layer.kernel_size[0], layer.stride[0]
    reflect = layer.padding_mode == "reflect"
    rule = reflection_padding if reflect else same_padding
    amounts = (*rule(x.shape[3], kernel, stride), *rule(x.shape[2], kernel, stride))
    weight = layer.weight.flip(2, 3) if layer.is_turned else layer.weight
    return functional.conv2d(
        functional.pad(x, amounts, "reflect" if reflect else "constant"), weight, layer.bias, stride
    )


@pytest.mark.parametrize("reflect", [False, True])
@pytest.mark.parametrize(("kernel", "stride"), [(5, 2), (3, 2), (5, 1), (3, 1), (1, 1)])
@pytest.mark.parametrize("size", [(8, 8), (9, 7), (16, 13), (24, 24)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_padding_is_that_of_keras(
    reflect: bool, kernel: int, stride: int, size: tuple[int, int], layout: torch.memory_format
) -> None:
    torch.manual_seed(0)
    layer = Convolution(3, 4, kernel, stride, reflect=reflect)
    torch.nn.init.normal_(layer.weight)
    torch.nn.init.normal_(layer.bias)
    layer = layer.to(memory_format=layout)
    x = torch.randn(2, 3, *size)
    torch.testing.assert_close(upright(layer, x), specified(layer, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arguments", [(4, 1), (5, 3)])
def test_what_cannot_be_padded_alike_is_refused(arguments: tuple[int, int]) -> None:
    with pytest.raises(ArgumentValueError, match="odd kernel"):
        Convolution(3, 4, *arguments)


def test_constructing_draws_nothing_from_the_global_generator() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    Convolution(3, 4, 5, 2)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("scale", [2, 3])
def test_pixel_shuffler_reads_channels_fastest(scale: int) -> None:
    channels, height, width = 3, 2, 4
    x = torch.randn(2, scale * scale * channels, height, width)
    expected = torch.empty(2, channels, height * scale, width * scale)
    for y in range(height):
        for x_place in range(width):
            for i in range(scale):
                for j in range(scale):
                    for c in range(channels):
                        pixel = x[:, (i * scale + j) * channels + c, y, x_place]
                        expected[:, c, y * scale + i, x_place * scale + j] = pixel
    assert torch.equal(PixelShuffler(scale)(x), expected)
    last = PixelShuffler(scale)(x.contiguous(memory_format=torch.channels_last))
    assert torch.equal(last, expected)
    assert last.is_contiguous(memory_format=torch.channels_last)


def test_flatten_and_reshape_follow_channels_last() -> None:
    x = torch.randn(2, 3, 4, 5)
    flat = ChannelsLastFlatten()(x)
    h, w, c = 2, 3, 1
    assert torch.equal(flat[:, (h * 5 + w) * 3 + c], x[:, c, h, w])
    assert torch.equal(ChannelsLastReshape(3, 4, 5)(flat), x)


def test_turning_twice_changes_nothing() -> None:
    x = torch.randn(1, 2, 3, 4)
    assert torch.equal(Turn()(x)[0, 0, 0, 0], x[0, 0, 2, 3])
    assert torch.equal(Turn()(Turn()(x)), x)


def test_outputs_are_float32_whatever_comes_in() -> None:
    output = SigmoidOutput()(torch.zeros(1, 1, 2, 2, dtype=torch.bfloat16))
    assert output.dtype == torch.float32
    assert (output == 0.5).all()
