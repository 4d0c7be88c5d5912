"""Margins: the formula in every combination, its derivative, and what replaces it past pi."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.recognition.margins import (
    MARGINS,
    Margin,
    arcface,
    combined,
    cosface,
    margin_logits,
    normalised_softmax,
)


def cosines_of(angles: list[float], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.cos(torch.tensor(angles, dtype=dtype))


@pytest.mark.parametrize(
    ("m1", "m2", "m3"), list(itertools.product([1.0, 0.9, 1.35], [0.0, 0.3, -0.2], [0.0, 0.2, -0.1]))
)
def test_every_combination_follows_the_formula(m1: float, m2: float, m3: float) -> None:
    angles = [0.3, 1.2, 2.0, 2.9]
    value, slope = Margin(16.0, m1, m2, m3).target(cosines_of(angles))
    for number, angle in enumerate(angles):
        assert math.isclose(value[number], math.cos(m1 * angle + m2) - m3, abs_tol=1e-12)
        assert math.isclose(slope[number], m1 * math.sin(m1 * angle + m2) / math.sin(angle), rel_tol=1e-9)


@given(
    angle=st.floats(0.05, 3.09),
    m1=st.floats(0.5, 1.5),
    m2=st.floats(-0.5, 1.0),
    m3=st.floats(-0.5, 0.5),
    wrap=st.sampled_from(["none", "easy", "linear"]),
)
def test_the_slope_is_the_derivative(angle: float, m1: float, m2: float, m3: float, wrap: Any) -> None:
    margin = Margin(1.0, m1, m2, m3, wrap=wrap)
    cosine, step = math.cos(angle), 1e-6
    around = torch.tensor([cosine - step, cosine, cosine + step], dtype=torch.float64)
    value, slope = margin.target(around)
    assume(slope.max() - slope.min() <= 1e-2 * (1 + slope.abs().max()))  # no corner of the wrap lies in between
    assert math.isclose((value[2] - value[0]) / (2 * step), slope[1], rel_tol=1e-3, abs_tol=1e-4)


@pytest.mark.parametrize("m1", [1.0, 1.2, 0.8])
@pytest.mark.parametrize("m2", [0.3, 0.5, 1.0])
def test_with_the_linear_wrap_logits_never_rise_with_the_angle(m1: float, m2: float) -> None:
    angles = torch.linspace(0.001, 3.14, 2000, dtype=torch.float64)
    value, slope = Margin(1.0, m1, m2, wrap="linear").target(torch.cos(angles))
    assert (value[1:] <= value[:-1] + 1e-12).all()
    assert (slope >= 0).all()
    bare, _ = Margin(1.0, m1, m2).target(torch.cos(angles))
    assert bool((bare[1:] > bare[:-1]).any()) == (m1 * 3.14 + m2 > math.pi)


def test_the_wraps_of_arcface_are_the_known_ones() -> None:
    cosines = cosines_of([1.0, 1.5, 1.7, 2.5, 3.0])
    easy, _ = arcface(0.5, wrap="easy").target(cosines)
    torch.testing.assert_close(easy[2:], cosines[2:])
    torch.testing.assert_close(easy[:2], cosines_of([1.5, 2.0]))
    linear, _ = arcface(0.5, wrap="linear").target(cosines)
    torch.testing.assert_close(linear[:3], cosines_of([1.5, 2.0, 2.2]))
    torch.testing.assert_close(linear[4:], cosines[4:] - 0.5 * math.sin(0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_slope_is_finite_and_right_at_both_ends(dtype: torch.dtype) -> None:
    ends = torch.tensor([1.0, -1.0], dtype=dtype)
    for margin in (arcface(), combined(1.35, 0.5, 0.1), combined(0.9, 0.0, 0.0)):
        assert torch.isfinite(margin.target(ends)[1]).all()
    _, slope = Margin(m1=1.35, m2=0.0).target(ends)
    assert math.isclose(slope[0], 1.35**2, rel_tol=1e-3)  # the limit
    value, slope = cosface(0.4).target(ends)
    assert value.tolist() == pytest.approx([0.6, -1.4])
    assert slope.tolist() == [1.0, 1.0]


def test_straight_through_takes_the_angular_part_for_the_identity() -> None:
    cosines = cosines_of([0.2, 1.0, 2.9])
    for wrap in ("none", "easy", "linear"):
        exact, _ = arcface(0.5, wrap=wrap).target(cosines)
        value, slope = arcface(0.5, wrap=wrap, gradient="straight_through").target(cosines)
        assert torch.equal(value, exact)
        assert slope.tolist() == [1.0] * 3


def test_large_cosines_of_other_classes_count_as_zero_and_get_no_gradient() -> None:
    cosines = torch.tensor([[0.9, 0.41, 0.4, -0.5], [0.7, 0.1, 0.5, 0.2]], requires_grad=True)
    margin = cosface(0.1, 10.0, interclass_threshold=0.4)
    logits = margin_logits(cosines, torch.tensor([0, -1]), margin)
    assert logits.tolist() == [pytest.approx([8.0, 0.0, 4.0, -5.0]), pytest.approx([0.0, 1.0, 0.0, 2.0])]
    logits.sum().backward()
    assert cosines.grad is not None
    assert cosines.grad.tolist() == [[10.0, 0.0, 10.0, 10.0], [0.0, 10.0, 0.0, 10.0]]


def test_samples_without_a_class_get_no_margin_and_are_scaled() -> None:
    cosines = torch.tensor([[0.5, 0.1], [0.3, 0.2]])
    assert torch.equal(margin_logits(cosines, torch.tensor([-1, -1]), arcface(0.5, 8.0)), 8.0 * cosines)


def test_names_lead_to_margins() -> None:
    assert MARGINS["arcface"](0.3, 30.0) == Margin(30.0, 1.0, 0.3, 0.0)
    assert MARGINS["cosface"]() == Margin(64.0, 1.0, 0.0, 0.4)
    assert MARGINS["combined"]() == Margin(64.0, 1.0, 0.3, 0.2)
    assert MARGINS["softmax"](16.0) == normalised_softmax(16.0) == Margin(16.0, 1.0, 0.0, 0.0)
    assert not cosface().is_angular
    assert arcface().is_angular


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"scale": 0.0}, "scale"),
        ({"m1": -1.0}, "m1"),
        ({"m2": math.nan}, "m2"),
        ({"m3": "0.4"}, "m3"),
        ({"interclass_threshold": 1.0}, "threshold"),
        ({"gradient": "true"}, "gradient"),
        ({"wrap": "hard"}, "wrap"),
    ],
)
def test_wrong_values_are_refused_by_name(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ArgumentValueError, match=named):
        Margin(**wrong)


def test_labels_that_are_no_integers_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="float32"):
        margin_logits(torch.zeros(2, 3), torch.zeros(2), arcface())
