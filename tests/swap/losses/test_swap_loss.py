from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.config import LossOptions
from ostinato.errors import ArgumentValueError
from ostinato.swap.losses import SwapLoss, loss_names


def options(**changes: Any) -> LossOptions:
    return LossOptions(**{"loss_function": "mae", "loss_function_2": "none", **changes})


def masks(**values: Tensor) -> dict[str, list[Tensor]]:
    return {name: [value] for name, value in values.items()}


def random(*shape: int, seed: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


TARGET = random(2, 3, 16, 16, seed=1)
PREDICTION = random(2, 3, 16, 16, seed=2)
FACE, EYE, MOUTH = (random(2, 1, 16, 16, seed=seed) for seed in (3, 4, 5))


def test_the_mean_is_over_all_pixels_masked_or_not() -> None:
    loss = SwapLoss(options(eye_multiplier=1, mouth_multiplier=1), False, (16,))
    half = torch.zeros(2, 1, 16, 16)
    half[..., :8] = 1

    result = loss([torch.ones(2, 3, 16, 16)], [torch.zeros(2, 3, 16, 16)], masks(face=half))

    assert result.total.item() == pytest.approx(0.5)


def test_an_eye_multiplier_of_three_counts_three_times() -> None:
    loss = SwapLoss(options(eye_multiplier=3, mouth_multiplier=1), False, (16,))
    everywhere = torch.ones(2, 1, 16, 16)

    result = loss([PREDICTION], [TARGET], masks(face=everywhere, eye=everywhere, mouth=everywhere))

    assert result.total.item() == pytest.approx(3 * (PREDICTION - TARGET).abs().mean().item(), rel=1e-5)


def test_masks_multiply_as_the_formula_says() -> None:
    loss = SwapLoss(
        options(loss_function="mse", loss_function_2="mae", loss_weight_2=25, eye_multiplier=4, mouth_multiplier=2),
        False,
        (16,),
    )
    weight_map = FACE * (1 + 3 * EYE) * (1 + MOUTH)
    mse = ((PREDICTION - TARGET) ** 2 * weight_map).mean().item()
    mae = ((PREDICTION - TARGET).abs() * weight_map).mean().item()

    result = loss([PREDICTION], [TARGET], masks(face=FACE, eye=EYE, mouth=MOUTH))

    assert {name: value.item() for name, value in result.unweighted[0].items()} == pytest.approx(
        {"mse": mse, "mae": mae}, rel=1e-5
    )
    assert {name: value.item() for name, value in result.weighted[0].items()} == pytest.approx(
        {"mse": mse, "mae": mae / 4}, rel=1e-5
    )
    assert result.total.item() == pytest.approx(mse + mae / 4, rel=1e-5)
    assert result.mask is None


def test_a_mouth_mask_without_an_eye_mask_is_still_the_mouth() -> None:
    loss = SwapLoss(options(eye_multiplier=1, mouth_multiplier=5), False, (16,))
    result = loss([PREDICTION], [TARGET], masks(face=FACE, mouth=MOUTH))
    expected = ((PREDICTION - TARGET).abs() * FACE * (1 + 4 * MOUTH)).mean().item()
    assert result.total.item() == pytest.approx(expected, rel=1e-5)


def test_without_penalized_mask_no_mask_counts() -> None:
    loss = SwapLoss(options(penalized_mask_loss=False), False, (16,))
    result = loss([PREDICTION], [TARGET], masks(face=FACE, eye=EYE, mouth=MOUTH))
    assert result.total.item() == pytest.approx((PREDICTION - TARGET).abs().mean().item(), rel=1e-6)


@pytest.mark.parametrize("name", ["ssim", "mse", "mae"])
def test_a_mask_of_ones_changes_nothing(name: str) -> None:
    plain = SwapLoss(options(loss_function=name, penalized_mask_loss=False), False, (16,))
    masked = SwapLoss(options(loss_function=name), False, (16,))
    ones = torch.ones(2, 1, 16, 16)
    zeros = torch.zeros(2, 1, 16, 16)
    without = plain([PREDICTION], [TARGET], {}).total
    torch.testing.assert_close(masked([PREDICTION], [TARGET], masks(face=ones, eye=zeros, mouth=zeros)).total, without)


@pytest.mark.parametrize("name", ["ssim", "mse", "mae"])
def test_identical_pictures_have_no_loss_and_a_finite_gradient(name: str) -> None:
    loss = SwapLoss(options(loss_function=name, penalized_mask_loss=False), False, (16,))
    prediction = TARGET.clone().requires_grad_()
    total = loss([prediction], [TARGET], {}).total
    total.backward()
    assert total.item() == pytest.approx(0, abs=1e-5)
    assert prediction.grad is not None
    assert torch.isfinite(prediction.grad).all()


@pytest.mark.parametrize("function", ["mse", "mae"])
def test_a_learned_mask_is_compared_with_the_face_mask_unweighted(function: str) -> None:
    loss = SwapLoss(options(loss_function_2="mse", loss_weight_2=10, mask_loss_function=function), True, (16,))
    drawn = random(2, 1, 16, 16, seed=6)

    result = loss([PREDICTION, drawn], [TARGET], masks(face=FACE, eye=EYE, mouth=MOUTH))

    difference = drawn - FACE
    expected = (difference**2 if function == "mse" else difference.abs()).mean().item()
    assert result.mask is not None
    assert result.mask.item() == pytest.approx(expected, rel=1e-5)
    faces = sum(value.item() for value in result.weighted[0].values())
    assert result.total.item() == pytest.approx(faces + expected, rel=1e-5)


def test_all_outputs_count_and_are_told_apart() -> None:
    loss = SwapLoss(options(penalized_mask_loss=False), False, (8, 16))
    small, small_target = random(2, 3, 8, 8, seed=7), random(2, 3, 8, 8, seed=8)
    result = loss([small, PREDICTION], [small_target, TARGET], {})
    values = [(small - small_target).abs().mean().item(), (PREDICTION - TARGET).abs().mean().item()]
    assert [output["mae"].item() for output in result.unweighted] == pytest.approx(values)
    assert result.total.item() == pytest.approx(sum(values))


def test_a_function_named_twice_counts_with_both_weights() -> None:
    loss = SwapLoss(options(loss_function="ssim", loss_function_2="ssim", loss_weight_2=25), False, (16,))
    assert loss.weights == {"ssim": 1.25}


def test_none_and_weight_zero_leave_a_function_out() -> None:
    loss = SwapLoss(
        options(loss_function_2="none", loss_weight_2=100, loss_function_3="mse", loss_weight_3=0), False, (16,)
    )
    assert loss.weights == {"mae": 1.0}


def test_values_are_detached_and_the_total_is_not() -> None:
    loss = SwapLoss(options(), True, (16,))
    prediction = PREDICTION.clone().requires_grad_()
    result = loss([prediction, FACE], [TARGET], masks(face=FACE))
    assert result.total.requires_grad
    for value in (result.mask, result.weighted[0]["mae"], result.unweighted[0]["mae"]):
        assert value is not None
        assert not value.requires_grad
        assert value.ndim == 0


def test_half_precision_faces_are_compared_in_float32() -> None:
    loss = SwapLoss(options(loss_function="ssim", penalized_mask_loss=False), False, (16,))
    with torch.autocast("cpu", torch.bfloat16):
        rough = loss([PREDICTION.bfloat16()], [TARGET], {}).total
    exact = loss([PREDICTION.bfloat16().float()], [TARGET], {}).total
    assert torch.equal(rough, exact)


def test_windows_are_no_state() -> None:
    assert SwapLoss(options(loss_function="ssim"), False, (16,)).state_dict() == {}


def test_a_missing_face_mask_is_named() -> None:
    with pytest.raises(ArgumentValueError, match="mask_type"):
        SwapLoss(options(), False, (16,))([PREDICTION], [TARGET], {})
    with pytest.raises(ArgumentValueError, match="mask_type"):
        SwapLoss(options(penalized_mask_loss=False), True, (16,))([PREDICTION, FACE], [TARGET], {})


def test_a_wrong_number_of_outputs_is_named() -> None:
    with pytest.raises(ArgumentValueError, match="2 predictions"):
        SwapLoss(options(), False, (16,))([PREDICTION, FACE], [TARGET], masks(face=FACE))


def test_an_output_too_small_for_a_function_is_refused_when_the_loss_is_made() -> None:
    with pytest.raises(ArgumentValueError, match="ssim"):
        SwapLoss(options(loss_function="ssim"), False, (4,))


def test_an_unknown_function_lists_the_known_ones() -> None:
    wrong = LossOptions.model_construct(**{**options().model_dump(), "loss_function_2": "sim"})
    with pytest.raises(ArgumentValueError, match=r"'sim'.*mae, mse, ssim"):
        SwapLoss(wrong, False, (16,))
    assert loss_names() == ("mae", "mse", "ssim")
