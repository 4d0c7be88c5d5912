from __future__ import annotations

import typing
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.config import LossOptions
from ostinato.config.loss import MainLoss
from ostinato.errors import ArgumentValueError
from ostinato.swap.losses import SwapLoss, build_loss, loss_names

NAMES = [name for name in loss_names() if not name.startswith("lpips_")]
"""Functions that need no file; the others have tests of their own."""


def options(**changes: Any) -> LossOptions:
    return LossOptions(**{"loss_function": "mae", "loss_function_2": "none", **changes})


def alone(name: str, **changes: Any) -> LossOptions:
    """That function and no other."""
    if name in typing.get_args(MainLoss):
        return options(loss_function=name, **changes)
    # Not checked: functions that are companions only would need a first one beside them.
    return LossOptions.model_construct(**{**options(**changes).model_dump(), "loss_function": name})


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


@pytest.mark.parametrize("name", NAMES)
def test_a_mask_of_ones_changes_nothing(name: str) -> None:
    plain, masked = (SwapLoss(alone(name, penalized_mask_loss=on), False, (48,)) for on in (False, True))
    target, prediction = random(2, 3, 48, 48, seed=1), random(2, 3, 48, 48, seed=2)
    ones, zeros = torch.ones(2, 1, 48, 48), torch.zeros(2, 1, 48, 48)
    without = plain([prediction], [target], {}).total
    torch.testing.assert_close(masked([prediction], [target], masks(face=ones, eye=zeros, mouth=zeros)).total, without)


@pytest.mark.parametrize("name", NAMES)
def test_multipliers_of_the_whole_face_multiply_the_loss(name: str) -> None:
    """Three for the eyes where all is eye: three times the loss, for maps and for single numbers."""
    once, thrice = (SwapLoss(alone(name, eye_multiplier=e, mouth_multiplier=1), False, (48,)) for e in (1, 3))
    target, prediction = random(2, 3, 48, 48, seed=1), random(2, 3, 48, 48, seed=2)
    face = (random(2, 1, 48, 48, seed=3) > 0.5).float()
    given = masks(face=face, eye=torch.ones(2, 1, 48, 48), mouth=face)
    one, three = (loss([prediction], [target], given).total for loss in (once, thrice))
    torch.testing.assert_close(three, 3 * one)


@pytest.mark.parametrize("name", NAMES)
def test_eyes_and_mouth_outside_of_the_face_change_nothing(name: str) -> None:
    loss = SwapLoss(alone(name, eye_multiplier=4, mouth_multiplier=5), False, (48,))
    target, prediction = random(2, 3, 48, 48, seed=1), random(2, 3, 48, 48, seed=2)
    face = torch.zeros(2, 1, 48, 48)
    face[..., 10:30, 8:40] = 1
    eye, mouth = random(2, 1, 48, 48, seed=4), random(2, 1, 48, 48, seed=5)
    inside = loss([prediction], [target], masks(face=face, eye=eye * face, mouth=mouth * face)).total
    assert torch.equal(loss([prediction], [target], masks(face=face, eye=eye, mouth=mouth)).total, inside)


@pytest.mark.parametrize("name", sorted({"mae", "mse", "logcosh", "smooth_loss", "l_inf_norm", "ffl"}))
def test_pixels_outside_of_the_face_change_nothing(name: str) -> None:
    """Functions that look at one pixel at a time, or at pictures that are cut out."""
    loss = SwapLoss(alone(name), False, (16,))
    face = torch.zeros(2, 1, 16, 16)
    face[..., 4:12, 4:12] = 1
    given = masks(face=face, eye=EYE, mouth=MOUTH)
    elsewhere = torch.where(face > 0, PREDICTION, random(2, 3, 16, 16, seed=9)).requires_grad_()
    total = loss([elsewhere], [TARGET], given).total
    assert torch.equal(total, loss([PREDICTION], [TARGET], given).total)
    total.backward()
    assert elsewhere.grad is not None
    assert not elsewhere.grad[(face == 0).expand_as(elsewhere)].any()


@pytest.mark.parametrize("name", ["ffl", "l_inf_norm"])
def test_functions_without_a_map_are_given_cut_outs(name: str) -> None:
    function = build_loss(name, (16,))
    loss = SwapLoss(alone(name, eye_multiplier=4, mouth_multiplier=3), False, (16,))

    def cut(mask: Tensor) -> float:
        return function(TARGET * mask, PREDICTION * mask).mean().item()

    result = loss([PREDICTION], [TARGET], masks(face=FACE, eye=EYE, mouth=MOUTH))
    assert result.total.item() == pytest.approx(cut(FACE) + 3 * cut(FACE * EYE) + 2 * cut(FACE * MOUTH), rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_gradients_at_equality_are_finite_under_autocast(name: str, precision: torch.dtype) -> None:
    loss = SwapLoss(alone(name), False, (48,))
    target = random(2, 3, 48, 48, seed=1).to(precision).float()
    target[..., :5], target[..., -5:] = 0, 1
    prediction = target.to(precision).requires_grad_()
    ones = torch.ones(2, 1, 48, 48)
    with torch.autocast("cpu", precision):
        total = loss([prediction], [target], masks(face=ones, eye=ones, mouth=ones)).total
    total.backward()
    assert total.item() == pytest.approx(0, abs=1e-5)
    assert prediction.grad is not None
    assert torch.isfinite(prediction.grad).all()


def test_four_functions_of_both_kinds_add_up() -> None:
    names, percents = ("ms_ssim", "l_inf_norm", "flip", "ffl"), (100, 25, 300, 7)
    chosen = {"loss_function": "ms_ssim"}
    for number, (name, percent) in enumerate(zip(names[1:], percents[1:], strict=True), start=2):
        chosen |= {f"loss_function_{number}": name, f"loss_weight_{number}": percent}
    sizes = (48, 64)
    loss = SwapLoss(options(**chosen, penalized_mask_loss=False), False, sizes)
    drawn = [random(2, 3, size, size, seed=size) for size in sizes]
    real = [random(2, 3, size, size, seed=size + 1) for size in sizes]

    result = loss(drawn, real, {})

    assert [tuple(values) for values in result.weighted] == [names, names]
    expected = sum(
        percent / 100 * build_loss(name, sizes)(t, p).mean().item()
        for t, p in zip(real, drawn, strict=True)
        for name, percent in zip(names, percents, strict=True)
    )
    assert result.total.item() == pytest.approx(expected, rel=1e-5)


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
    with pytest.raises(ArgumentValueError, match=r"'sim'.*mae, ms_ssim, mse"):
        SwapLoss(wrong, False, (16,))
