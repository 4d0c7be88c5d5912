from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from ostinato.errors import ArgumentValueError
from ostinato.swap.losses.ssim import ssim_map, window_matrix


def naive_ssim(target: Tensor, prediction: Tensor) -> Tensor:
    """The specification, written out: an 11 x 11 window on pictures that are mirrored at their border."""
    offsets = torch.arange(-5.0, 6.0, dtype=target.dtype)
    line = torch.exp(-(offsets**2) / (2 * 1.5**2))
    window = torch.outer(line, line)
    window = (window / window.sum()).expand(target.shape[1], 1, 11, 11)

    def average(x: Tensor) -> Tensor:
        return functional.conv2d(functional.pad(x, (5, 5, 5, 5), mode="reflect"), window, groups=x.shape[1])

    m0, m1 = average(target), average(prediction)
    a, b = 2 * m0 * m1, m0**2 + m1**2
    luminance = (a + 0.01**2) / (b + 0.01**2)
    squares = average(target**2 + prediction**2)
    contrast = (2 * average(target * prediction) - a + 0.03**2) / ((squares - b).clamp(min=0) + 0.03**2)
    return 1 - luminance * contrast


def ours(target: Tensor, prediction: Tensor) -> Tensor:
    rows, columns = (window_matrix(size).to(target.dtype) for size in target.shape[-2:])
    return ssim_map(target, prediction, rows, columns)


def pictures(height: int, width: int, seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    target = torch.rand(2, 3, height, width, dtype=dtype, generator=generator)
    other = torch.rand(2, 3, height, width, dtype=dtype, generator=generator)
    return target, (target + other) / 2


@given(st.integers(6, 40), st.integers(6, 40), st.integers(0, 99))
def test_values_and_gradients_are_those_of_the_specification(height: int, width: int, seed: int) -> None:
    target, prediction = pictures(height, width, seed)
    fast, naive = prediction.clone().requires_grad_(), prediction.clone().requires_grad_()
    gradient = torch.rand(prediction.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    fast_map, naive_map = ours(target, fast), naive_ssim(target, naive)

    # The window is kept in float32, a relative 6e-8, over a contrast constant of 9e-4.
    torch.testing.assert_close(fast_map, naive_map, rtol=0, atol=2e-5)
    (fast_gradient,) = torch.autograd.grad(fast_map, fast, gradient)
    (naive_gradient,) = torch.autograd.grad(naive_map, naive, gradient)
    torch.testing.assert_close(fast_gradient, naive_gradient, rtol=0, atol=float(naive_gradient.abs().max()) * 1e-4)


def test_the_gradient_is_the_derivative() -> None:
    target, prediction = pictures(7, 6, 0)
    assert torch.autograd.gradcheck(lambda p: ours(target, p), (prediction.requires_grad_(),), atol=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_identical_pictures_have_no_loss_and_a_finite_gradient(value: float) -> None:
    picture = torch.full((1, 3, 16, 16), value)
    prediction = picture.clone().requires_grad_()
    loss = ours(picture, prediction)
    assert loss.abs().max() < 1e-3
    loss.mean().backward()
    assert prediction.grad is not None
    assert torch.isfinite(prediction.grad).all()


def test_opposite_pictures_lose_more_than_one() -> None:
    board = (torch.arange(16)[:, None] + torch.arange(16)) % 2
    board = board.float().expand(1, 3, 16, 16)
    assert ours(board, 1 - board).mean() > 1


def test_memory_layout_does_not_matter() -> None:
    target, prediction = pictures(12, 12, 1, torch.float32)
    last = ours(target.contiguous(memory_format=torch.channels_last), prediction)
    assert torch.equal(last, ours(target, prediction))


def test_every_row_of_the_window_sums_to_one() -> None:
    torch.testing.assert_close(window_matrix(9).sum(1), torch.ones(9))


def test_pictures_too_small_to_be_mirrored_are_refused() -> None:
    window_matrix(6)
    with pytest.raises(ArgumentValueError, match="at least 6 x 6 pixels, and these have 5"):
        window_matrix(5)
