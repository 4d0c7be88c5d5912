from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_pictures import filtered, gaussian, pictures
from torch import Tensor
from torch.nn import functional

from ostinato.errors import ArgumentValueError
from ostinato.swap.losses import build_loss


def slow(target: Tensor, prediction: Tensor) -> Tensor:
    """A pyramid of each picture, blurred by whole kernels."""

    def pyramid(picture: Tensor) -> list[Tensor]:
        levels = []
        for _ in range(5):
            blurred = filtered(picture, gaussian(5, 1.0, picture.dtype), "replicate")
            levels.append(picture - blurred)
            picture = functional.avg_pool2d(blurred, 2)
        return [*levels, picture]

    parts = [(p - t).abs() for p, t in zip(pyramid(prediction), pyramid(target), strict=True)]
    enlarged = [functional.interpolate(p, target.shape[-2:], mode="bilinear", align_corners=False) for p in parts]
    return torch.stack([part / 4**level for level, part in enumerate(enlarged)]).sum(0)


@settings(max_examples=20)
@given(st.integers(32, 70), st.integers(32, 70), st.integers(0, 99))
def test_values_and_gradients_are_those_of_the_slow_version(height: int, width: int, seed: int) -> None:
    target, prediction = pictures(height, width, seed)
    ours, theirs = prediction.clone().requires_grad_(), prediction.clone().requires_grad_()
    mine, slowly = build_loss("laploss", (height, width)).double()(target, ours), slow(target, theirs)
    # The kernel is kept in float32.
    torch.testing.assert_close(mine, slowly, rtol=0, atol=1e-6)
    mine.square().mean().backward()
    slowly.square().mean().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    assert (ours.grad - theirs.grad).norm() < 1e-2 * theirs.grad.norm()


def test_pictures_that_cannot_be_halved_five_times_are_refused() -> None:
    with pytest.raises(
        ArgumentValueError, match="laploss needs pictures of at least 32 x 32 pixels, and these have 31"
    ):
        build_loss("laploss", (64, 31))
