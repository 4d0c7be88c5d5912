from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ostinato.config import OptimizerOptions
from ostinato.errors import ArgumentValueError
from ostinato.optim import GradientClipper


def parameters(*gradients: list[float] | None) -> list[nn.Parameter]:
    made = []
    for gradient in gradients:
        parameter = nn.Parameter(torch.zeros(len(gradient or [0.0]), dtype=torch.float64))
        parameter.grad = None if gradient is None else torch.tensor(gradient, dtype=torch.float64)
        made.append(parameter)
    return made


def gradients(made: list[nn.Parameter]) -> list[list[float]]:
    return [parameter.grad.tolist() for parameter in made if parameter.grad is not None]


def test_value_limits_every_entry() -> None:
    made = parameters([0.5, -3.0], None, [2.0])
    assert GradientClipper("value", 1.0).clip(made) is None
    assert gradients(made) == [[0.5, -1.0], [1.0]]


def test_norm_limits_every_tensor_by_itself() -> None:
    made = parameters([3.0, 4.0], [0.3, 0.4])
    GradientClipper("norm", 1.0).clip(made)
    assert gradients(made) == [[pytest.approx(0.6), pytest.approx(0.8)], [0.3, 0.4]]


def test_global_norm_limits_all_tensors_together() -> None:
    made = parameters([3.0], None, [4.0])
    norm = GradientClipper("global_norm", 1.0).clip(made)
    assert norm is not None
    assert norm.item() == pytest.approx(5.0)
    scale = 1 / (5 + 1e-6)
    assert gradients(made) == [[pytest.approx(3 * scale)], [pytest.approx(4 * scale)]]


def test_a_small_gradient_is_left_alone_bit_for_bit() -> None:
    made = parameters([0.1, 0.2])
    GradientClipper("global_norm", 1.0).clip(made)
    assert gradients(made) == [[0.1, 0.2]]


def test_none_does_nothing() -> None:
    made = parameters([1e9])
    assert GradientClipper("none", 0.0).clip(made) is None
    assert gradients(made) == [[1e9]]


ordinary = st.one_of(st.just(0.0), st.floats(1e-6, 1e3), st.floats(-1e3, -1e-6))
entries = st.lists(ordinary, min_size=1, max_size=4)


@given(st.lists(entries, min_size=1, max_size=4), st.floats(1e-3, 1e3))
def test_limits_hold_and_directions_stay(values: list[list[float]], limit: float) -> None:
    before = [torch.tensor(each, dtype=torch.float64) for each in values]
    after: dict[str, list[torch.Tensor]] = {}
    for method in ("value", "norm", "global_norm"):
        made = parameters(*values)
        GradientClipper(method, limit).clip(made)
        after[method] = [parameter.grad for parameter in made if parameter.grad is not None]

    for clipped, whole in zip(after["value"], before, strict=True):
        assert torch.equal(clipped, whole.clamp(-limit, limit))
    for clipped, whole in zip(after["norm"], before, strict=True):
        assert clipped.norm() <= limit * (1 + 1e-12)
        assert torch.allclose(clipped * whole.norm(), whole * clipped.norm(), rtol=1e-9, atol=0)
        if whole.norm() <= limit * (1 - 1e-12):
            assert torch.equal(clipped, whole)
    together, one = torch.cat(after["global_norm"]), torch.cat(before)
    assert together.norm() <= limit * (1 + 1e-12)
    assert torch.allclose(together * one.norm(), one * together.norm(), rtol=1e-9, atol=0)
    if one.norm() <= limit - 2e-6:
        assert torch.equal(together, one)


class NaiveAutoclip:
    """AutoClip with a list and numpy's percentile."""

    def __init__(self, value: float, history: int) -> None:
        self.percentile = int(10 * value)
        self.history = history
        self.norms: list[float] = []

    def factor(self, norm: float) -> float:
        if not math.isfinite(norm):
            return 1.0
        self.norms.append(norm)
        if self.history:
            self.norms = self.norms[-self.history :]
        return min(1.0, float(np.percentile(self.norms, self.percentile)) / (norm + 1e-6))


norms_strategy = st.lists(st.sampled_from([0.125, 0.25, 0.5, 1.0, 2.0, 7.0, math.inf, math.nan]), max_size=30)


@given(
    norms_strategy,
    st.sampled_from([0.0, 1.0, 2.5, 5.0, 9.9, 10.0]),
    st.sampled_from([0, 1, 4, 100]),
    st.integers(0, 29),
)
def test_autoclip_equals_a_list_and_a_percentile_and_goes_on_after_saving(
    norms: list[float], value: float, history: int, saved_after: int
) -> None:
    clipper, naive = GradientClipper("autoclip", value, history), NaiveAutoclip(value, history)
    for number, norm in enumerate(norms):
        if number == saved_after:
            state = clipper.state_dict()
            assert state["norms"].tolist() == pytest.approx(naive.norms)
            clipper = GradientClipper("autoclip", value, history)
            clipper.load_state_dict(state)
        made = parameters([0.48 * norm, 0.64 * norm], None, [0.6 * norm])
        clipper.clip(made)
        factor = naive.factor(norm)
        if math.isfinite(norm):
            assert made[2].grad is not None
            assert made[2].grad.item() == pytest.approx(0.6 * norm * factor, rel=1e-12)
    assert clipper.state_dict()["norms"].tolist() == pytest.approx(naive.norms)


def test_an_unlimited_history_grows() -> None:
    clipper = GradientClipper("autoclip", 5.0, 0)
    for number in range(1500):
        clipper.clip(parameters([float(number)]))
    assert len(clipper.state_dict()["norms"]) == 1500


def test_a_shorter_history_keeps_the_newest_norms() -> None:
    clipper = GradientClipper("autoclip", 1.0, 2)
    clipper.load_state_dict({"norms": torch.tensor([1.0, 2.0, 3.0])})
    assert clipper.state_dict()["norms"].tolist() == [2.0, 3.0]


def test_methods_without_memory_have_no_state() -> None:
    clipper = GradientClipper("norm", 1.0)
    clipper.load_state_dict({"norms": torch.tensor([1.0])})
    assert clipper.state_dict() == {}


def test_autoclip_clips_float32_gradients_too() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    clipper = GradientClipper("autoclip", 0.0)
    for size in (1.0, 2.0):
        parameter.grad = torch.full((2,), size)
        clipper.clip([parameter])
    assert parameter.grad is not None
    torch.testing.assert_close(parameter.grad, torch.full((2,), 1.0))


def test_options_make_a_clipper() -> None:
    clipper = GradientClipper.from_options(
        OptimizerOptions(gradient_clipping="autoclip", clipping_value=2.5, autoclip_history=5000)
    )
    assert (clipper.method, clipper.value, clipper.history) == ("autoclip", 2.5, 5000)


@pytest.mark.parametrize("arguments", [("norms", 1.0, 0), ("norm", -1.0, 0), ("autoclip", 1.0, -1)])
def test_nonsense_is_refused(arguments: tuple[str, float, int]) -> None:
    with pytest.raises(ArgumentValueError):
        GradientClipper(*arguments)
