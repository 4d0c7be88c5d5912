"""What holds for every loss function."""

from __future__ import annotations

import typing

import pytest
import torch
from loss_pictures import noise, pictures
from torch import Tensor

from ostinato.config.loss import ExtraLoss, MainLoss
from ostinato.errors import ArgumentValueError
from ostinato.swap.losses import ImageLoss, build_loss, loss_names

SIZE = 48
NAMES = [name for name in loss_names() if not name.startswith("lpips_")]
"""Functions that need no file; the others have tests of their own."""

SHARED = {"mae", "mse", "logcosh", "smooth_loss", "l_inf_norm", "ffl"}
"""Functions that are the same for every size, so that small pictures show all there is."""


def gradient(loss: ImageLoss, target: Tensor, prediction: Tensor) -> Tensor:
    prediction = prediction.clone().requires_grad_()
    loss(target, prediction).mean().backward()
    assert prediction.grad is not None
    return prediction.grad


def test_every_name_is_a_choice_of_the_options_and_the_other_way_round() -> None:
    assert {*typing.get_args(ExtraLoss)} == {*loss_names(), "none"}
    assert {*typing.get_args(MainLoss)} == {*NAMES} - {"flip"}


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ArgumentValueError, match=r"'sim'.*ffl, flip, gmsd"):
        build_loss("sim", (SIZE,))


@pytest.mark.parametrize("name", NAMES)
def test_the_shape_is_that_of_a_map_or_one_number_a_picture(name: str) -> None:
    target, prediction = pictures(SIZE, SIZE + 1, 1, torch.float32)
    loss = build_loss(name, (SIZE, SIZE + 1))
    shape = loss(target, prediction).shape
    if loss.spatial:
        assert shape in ((2, 3, SIZE, SIZE + 1), (2, 1, SIZE, SIZE + 1))
    else:
        assert shape == (2,)


@pytest.mark.parametrize("name", NAMES)
def test_identical_pictures_cost_nothing_and_others_cost_something(name: str) -> None:
    target, prediction = pictures(SIZE, SIZE, 1, torch.float32)
    loss = build_loss(name, (SIZE,))
    assert loss(target, target).abs().mean() < 1e-6
    assert loss(target, prediction).mean() > 1e-3
    assert loss(target, prediction).min() > -1e-6
    assert loss(target, 0.9 * target + 0.1 * prediction).mean() < loss(target, prediction).mean()


@pytest.mark.parametrize("name", NAMES)
def test_the_two_pictures_may_change_places(name: str) -> None:
    target, prediction = pictures(SIZE, SIZE, 1)
    loss = build_loss(name, (SIZE,)).double()
    torch.testing.assert_close(loss(target, prediction), loss(prediction, target))


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_batch_does_not_matter(name: str) -> None:
    target, prediction = pictures(SIZE, SIZE, 1, batch=3)
    loss = build_loss(name, (SIZE,)).double()
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(loss(target[order], prediction[order]), loss(target, prediction)[order])


@pytest.mark.parametrize("name", NAMES)
def test_arguments_stay_as_they_are(name: str) -> None:
    target, prediction = pictures(SIZE, SIZE, 1, torch.float32)
    before = target.clone(), prediction.clone()
    gradient(build_loss(name, (SIZE,)), target, prediction)
    assert torch.equal(target, before[0])
    assert torch.equal(prediction, before[1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", ["equal", "nearly equal", "black", "grey", "white", "opposite", "beyond"])
def test_gradients_are_finite(name: str, case: str) -> None:
    target = noise(2, 3, SIZE, SIZE, seed=1)
    flat = torch.ones(2, 3, SIZE, SIZE)
    pairs = {
        "equal": (target, target),
        "nearly equal": (target, target + 1e-6 * noise(2, 3, SIZE, SIZE, seed=2)),
        "black": (flat * 0, flat * 0),
        "grey": (flat / 2, flat / 4),
        "white": (flat, flat),
        "opposite": (flat * 0, flat),
        "beyond": (target, target * 4 - 2),
    }
    assert torch.isfinite(gradient(build_loss(name, (SIZE,)), *pairs[case])).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_channels_last_prediction_gives_the_same(name: str) -> None:
    target, prediction = pictures(SIZE, SIZE, 1, torch.float32)
    loss = build_loss(name, (SIZE,))
    last = prediction.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(loss(target, last), loss(target, prediction))
    torch.testing.assert_close(gradient(loss, target, last), gradient(loss, target, prediction))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *((name, 3) for name in sorted(SHARED - {"ffl"})),
        ("pixel_gradient_diff", 3),
        ("gmsd", 3),
        ("ssim", 6),
        ("flip", 4),
        ("laploss", 32),
        ("ms_ssim", 48),
    ],
)
def test_the_gradient_is_the_derivative(name: str, size: int) -> None:
    """``ffl`` has constants in place of its weights, so it is left to the comparison with its slow version."""
    target, prediction = pictures(size, size, 3, batch=1)
    loss = build_loss(name, (size,)).double()
    if size < 32:
        assert torch.autograd.gradcheck(lambda p: loss(target, p), (prediction.requires_grad_(),), atol=1e-5, rtol=1e-3)
        return
    # Too many pixels to move one by one: along random directions instead.
    mild = 0.9 * target + 0.1 * prediction
    slope = gradient(loss, target, mild)
    for seed in range(3):
        direction = noise(*mild.shape, seed=seed, dtype=torch.float64) - 0.5
        step = 1e-6
        change = loss(target, mild + step * direction).mean() - loss(target, mild - step * direction).mean()
        assert (change / (2 * step)).item() == pytest.approx((slope * direction).sum().item(), rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_constants_are_no_state_and_move_with_the_loss(name: str) -> None:
    loss = build_loss(name, (SIZE,))
    assert loss.state_dict() == {}
    assert {buffer.device.type for buffer in loss.to("meta").buffers()} <= {"meta"}


@pytest.mark.parametrize("name", sorted(set(NAMES) - SHARED - {"gmsd", "pixel_gradient_diff"}))
def test_a_size_that_was_not_named_is_refused(name: str) -> None:
    target, prediction = pictures(SIZE + 2, SIZE + 2, 1, torch.float32)
    with pytest.raises(ArgumentValueError, match="made for pictures of"):
        build_loss(name, (SIZE,))(target, prediction)


@pytest.mark.parametrize("name", NAMES)
def test_the_smallest_size_works(name: str) -> None:
    size = build_loss(name, ()).smallest
    target, prediction = pictures(size, size, 1, torch.float32)
    assert torch.isfinite(gradient(build_loss(name, (size,)), target, prediction)).all()
    if size > 1:
        with pytest.raises(ArgumentValueError, match=f"{name} needs pictures of at least {size} x {size} pixels"):
            build_loss(name, (size - 1,))
