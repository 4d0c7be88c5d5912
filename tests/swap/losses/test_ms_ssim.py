from __future__ import annotations

import logging

import pytest
import torch
from loss_pictures import pictures, ssim_parts
from torch import Tensor
from torch.nn import functional

from ostinato.errors import ArgumentValueError
from ostinato.swap.losses import build_loss
from ostinato.swap.losses.ms_ssim import power_product, window_for


def slow(target: Tensor, prediction: Tensor, window: int) -> Tensor:
    size = target.shape[-2:]
    product = torch.ones_like(target)
    for scale, exponent in enumerate((0.0448, 0.2856, 0.3001, 0.2363, 0.1333)):
        if scale:
            odd_y, odd_x = target.shape[-2] % 2, target.shape[-1] % 2
            target, prediction = (
                functional.avg_pool2d(functional.pad(p, (0, odd_x, 0, odd_y), mode="replicate"), 2)
                for p in (target, prediction)
            )
        luminance, contrast = ssim_parts(target, prediction, window)
        part = luminance * contrast if scale == 4 else contrast
        part = functional.interpolate(part, size=size, mode="bilinear", align_corners=False).clamp(min=0)
        product = product * part**exponent
    return 1 - product


@pytest.mark.parametrize(("height", "width", "window"), [(48, 61, 3), (81, 99, 5), (176, 177, 11)])
def test_values_and_gradients_are_those_of_the_slow_version(height: int, width: int, window: int) -> None:
    target, other = pictures(height, width, 1, batch=1)
    prediction = 0.9 * target + 0.1 * other
    ours, theirs = prediction.clone().requires_grad_(), prediction.clone().requires_grad_()
    loss = build_loss("ms_ssim", (height, width)).double()
    mine, slowly = loss(target, ours), slow(target, theirs, window)
    torch.testing.assert_close(mine, slowly, rtol=0, atol=1e-6)
    mine.square().mean().backward()
    slowly.square().mean().backward()
    assert theirs.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-4 * float(theirs.grad.abs().max()))


@pytest.mark.parametrize(
    ("size", "window"),
    [(48, 3), (79, 3), (80, 5), (111, 5), (112, 7), (143, 7), (144, 9), (175, 9), (176, 11), (512, 11)],
)
def test_the_window_fits_into_the_coarsest_scale(size: int, window: int) -> None:
    assert window_for(size) == window


def test_the_smallest_output_chooses_the_window_of_all() -> None:
    target, prediction = pictures(176, 176, 2, torch.float32, batch=1)
    for lengths, window in (((176,), 11), ((64, 176), 3)):
        expected = slow(target.double(), prediction.double(), window).mean()
        value = build_loss("ms_ssim", lengths)(target, prediction).mean()
        assert value.item() == pytest.approx(expected.item(), abs=1e-4)


def test_a_small_window_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        build_loss("ms_ssim", (176, 256))
        assert not caplog.records
        build_loss("ms_ssim", (175, 256))
    assert "window of 9 pixels" in caplog.text
    assert "below 176 pixels, ssim is the better choice" in caplog.text


def test_too_small_a_picture_is_sent_to_ssim() -> None:
    build_loss("ms_ssim", (48,))
    with pytest.raises(ArgumentValueError, match=r"at least 48 x 48 pixels, and these have 47\. Choose ssim"):
        build_loss("ms_ssim", (47,))


def test_the_window_moves_with_the_loss() -> None:
    loss = build_loss("ms_ssim", (64,)).to("meta")
    assert {buffer.device.type for buffer in loss.buffers()} == {"meta"}
    assert len(list(loss.buffers())) == 5


def test_opposite_structure_loses_one_and_has_a_finite_gradient() -> None:
    board = ((torch.arange(48)[:, None] + torch.arange(48)) % 2).float().expand(1, 3, 48, 48)
    prediction = (1 - board).requires_grad_()
    loss = build_loss("ms_ssim", (48,))(board, prediction)
    loss.mean().backward()
    torch.testing.assert_close(loss, torch.ones(1, 3, 48, 48))
    assert prediction.grad is not None
    assert torch.isfinite(prediction.grad).all()


def test_a_factor_of_zero_has_the_gradient_zero_and_others_their_own() -> None:
    values = torch.tensor([[0.5, 0.0, -0.3, 1e-30], *[[0.9] * 4] * 4], dtype=torch.float64)
    maps = [row.requires_grad_() for row in values]
    product = power_product(*maps)
    product.sum().backward()
    expected = 0.5**0.0448 * 0.9 ** (1 - 0.0448 + 0.0001)
    torch.testing.assert_close(product[:3].detach(), torch.tensor([expected, 0, 0], dtype=torch.float64))
    for part in maps:
        assert part.grad is not None
        assert torch.isfinite(part.grad).all()
        assert part.grad[1:3].tolist() == [0, 0]
    torch.testing.assert_close(maps[0].grad[0].item(), 0.0448 * expected / 0.5)
