"""``mae``, ``mse``, ``logcosh``, ``smooth_loss`` and ``l_inf_norm`` beside their equations."""

from __future__ import annotations

import math

import pytest
import torch
from loss_pictures import noise, pictures, robust

from ostinato.swap.losses import build_loss


@pytest.mark.parametrize(
    ("name", "equation"),
    [
        ("mae", lambda d: abs(d)),
        ("mse", lambda d: d * d),
        ("logcosh", lambda d: math.log(math.cosh(d))),
        ("smooth_loss", lambda d: float(robust(torch.tensor(d, dtype=torch.float64), 1.0, 1 / 255))),
    ],
)
def test_every_element_is_what_the_equation_says(name: str, equation: object) -> None:
    assert callable(equation)
    target, prediction = pictures(3, 4, 1)
    prediction = prediction * 6 - 2
    loss = build_loss(name, ())(target, prediction)
    for t, p, value in zip(target.flatten(), prediction.flatten(), loss.flatten(), strict=True):
        assert value.item() == pytest.approx(equation((p - t).item()), rel=1e-9, abs=1e-12)


def test_logcosh_is_exact_for_tiny_differences_and_does_not_overflow() -> None:
    loss = build_loss("logcosh", ())
    difference = torch.tensor([1e-3, 1e-2, 300.0]).view(1, 1, 1, 3)
    values = loss(torch.zeros(1, 1, 1, 3), difference).flatten()
    torch.testing.assert_close(values, torch.tensor([5e-7, 4.99992e-5, 300 - math.log(2)]), rtol=2e-4, atol=0)


def test_l_inf_norm_is_the_worst_pixel_of_each_channel() -> None:
    target = torch.zeros(2, 3, 5, 7)
    prediction = torch.zeros(2, 3, 5, 7)
    prediction[0, 0, 1, 2], prediction[0, 0, 4, 6], prediction[0, 2, 3, 3] = -0.5, 0.25, 0.25
    assert build_loss("l_inf_norm", ())(target, prediction).tolist() == [0.25, 0.0]


def test_equal_maxima_share_the_gradient_of_l_inf_norm() -> None:
    prediction = torch.zeros(1, 1, 2, 2)
    prediction[0, 0, 0] = 0.5
    prediction.requires_grad_()
    build_loss("l_inf_norm", ())(torch.zeros(1, 1, 2, 2), prediction).sum().backward()
    assert prediction.grad is not None
    assert prediction.grad.flatten().tolist() == [0.5, 0.5, 0, 0]


def test_only_the_rows_and_columns_of_one_picture_are_searched() -> None:
    target, prediction = noise(4, 3, 6, 5, seed=1), noise(4, 3, 6, 5, seed=2)
    together = build_loss("l_inf_norm", ())(target, prediction)
    alone = [build_loss("l_inf_norm", ())(target[i : i + 1], prediction[i : i + 1]) for i in range(4)]
    assert torch.equal(together, torch.cat(alone))
