from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from loss_pictures import pictures
from torch import Tensor

from ostinato.swap.losses import build_loss


def slow(target: Tensor, prediction: Tensor) -> Tensor:
    """The paper's equations, with whole spectra of both pictures."""
    difference = torch.fft.fft2(prediction, norm="ortho") - torch.fft.fft2(target, norm="ortho")
    square = difference.real**2 + difference.imag**2
    root = square.detach().sqrt()
    weights = (root / root.amax((-2, -1), keepdim=True).clamp(min=1e-6)).clamp(0, 1)
    return (weights * square).mean((1, 2, 3))


@given(st.integers(1, 13), st.integers(1, 13), st.integers(0, 99))
def test_values_and_gradients_are_those_of_the_slow_version(height: int, width: int, seed: int) -> None:
    target, prediction = pictures(height, width, seed)
    ours, theirs = prediction.clone().requires_grad_(), prediction.clone().requires_grad_()
    mine, slowly = build_loss("ffl", ())(target, ours), slow(target, theirs)
    torch.testing.assert_close(mine, slowly)
    mine.square().sum().backward()
    slowly.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_two_plain_greys_differ_in_one_frequency_and_have_a_finite_gradient() -> None:
    prediction = torch.full((1, 3, 8, 8), 0.25, requires_grad=True)
    loss = build_loss("ffl", ())(torch.full((1, 3, 8, 8), 0.5), prediction)
    loss.sum().backward()
    torch.testing.assert_close(loss, torch.tensor([0.0625]))
    assert prediction.grad is not None
    torch.testing.assert_close(prediction.grad, torch.full((1, 3, 8, 8), -0.5 / 192))
