from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from ostinato.swap.models.initializers import (
    convolution_aware,
    convolution_aware_kernel,
    glorot_uniform,
    he_uniform,
    icnr,
    initialize,
)
from ostinato.swap.models.layers import Convolution, Dense, PixelShuffler


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("initializer", "shape", "limit"),
    [
        (he_uniform, (64, 16, 5, 5), math.sqrt(6 / 400)),
        (glorot_uniform, (200, 100), math.sqrt(6 / 300)),
    ],
)
def test_uniform_limits(initializer, shape: tuple[int, ...], limit: float) -> None:  # type: ignore[no-untyped-def]
    drawn = initializer(shape, generator())
    assert drawn.abs().max() <= limit
    assert drawn.var().item() == pytest.approx(limit**2 / 3, rel=0.05)


def test_icnr_makes_the_sub_pixels_of_a_new_model_equal() -> None:
    kernel = icnr(he_uniform, 2)((12, 4, 3, 3), generator())
    y = PixelShuffler(2)(nn.functional.conv2d(torch.randn(1, 4, 6, 6), kernel))
    assert torch.equal(y[..., ::2, ::2], y[..., 1::2, 1::2])
    assert torch.equal(y[..., ::2, ::2], y[..., ::2, 1::2])


def test_convolution_aware_kernels_have_the_variance_of_he() -> None:
    kernel = convolution_aware((8, 16, 3, 3), generator())
    assert kernel.dtype == torch.float32
    assert kernel.var(correction=0).item() == pytest.approx(2 / 144, rel=1e-4)


def test_convolution_aware_equals_the_definition_filter_by_filter() -> None:
    filters, inputs, height, width, noise = 3, 8, 3, 3, 0.05
    random = np.random.RandomState(5)
    size, stacks = height * (width // 2 + 1), inputs // (height * (width // 2 + 1)) + 1
    draws = random.normal(size=(filters, stacks, size, size))
    kernel = np.empty((filters, inputs, height, width))
    for number in range(filters):
        rows = []
        for draw in draws[number]:
            left, _, _ = np.linalg.svd(draw + draw.T - np.diag(np.diag(draw)))
            rows.extend(left.T)
        for channel in range(inputs):
            spectrum = np.float32(rows[channel]).reshape(height, width // 2 + 1)
            kernel[number, channel] = np.fft.irfft2(spectrum, (height, width))
    kernel += random.normal(0, noise, kernel.shape)
    kernel *= math.sqrt(2 / (inputs * height * width) / kernel.var())

    ours = convolution_aware_kernel((filters, inputs, height, width), np.random.RandomState(5))

    np.testing.assert_allclose(ours, kernel, rtol=1e-4, atol=1e-6)


def test_single_pixel_kernels_are_drawn_too() -> None:
    assert convolution_aware((4, 8, 1, 1), generator()).shape == (4, 8, 1, 1)


def model() -> nn.Sequential:
    return nn.Sequential(Convolution(3, 8, 5, 2), Convolution(8, 16, 3, upscale=2), Dense(4, 5))


def test_a_seed_gives_the_same_weights_and_another_seed_others() -> None:
    made = []
    for seed in (1, 1, 2):
        made.append(model())
        initialize(made[-1], generator(seed))
    for layer in range(3):
        assert torch.equal(made[0][layer].weight, made[1][layer].weight)
        assert not torch.equal(made[0][layer].weight, made[2][layer].weight)
        assert not made[0][layer].bias.any()


def test_initialising_leaves_the_global_generators_alone() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    before, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()
    initialize(model(), generator(), icnr_init=True, conv_aware_init=True)
    assert torch.equal(before, torch.get_rng_state())
    assert (np.random.get_state()[1] == before_numpy).all()


def test_icnr_acts_only_in_front_of_a_shuffle() -> None:
    made = model()
    initialize(made, generator(), icnr_init=True)
    assert torch.equal(made[1].weight[:4], made[1].weight[4:8])
    assert not torch.equal(made[0].weight[:2], made[0].weight[2:4])


def test_a_model_without_memory_is_left_as_it_is() -> None:
    with torch.device("meta"):
        layer = Convolution(3, 4, 3)
    initialize(layer, torch.Generator().manual_seed(1), conv_aware_init=True)
    assert layer.weight.is_meta
