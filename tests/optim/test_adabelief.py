from __future__ import annotations

import logging
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ostinato.config import OptimizerOptions
from ostinato.optim import build_optimizer
from ostinato.optim.adabelief import AdaBelief, rectification

LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 4, 5, 5), (64, 64, 9, 9)])  # within a block, and cut into several
def test_updates_are_those_of_the_equations(shape: tuple[int, ...], layout: torch.memory_format) -> None:
    generator = torch.Generator().manual_seed(1)

    def draw() -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    parameter = nn.Parameter(draw().to(memory_format=layout))
    weight = parameter.detach().clone()
    m = s = torch.zeros(shape, dtype=torch.float64)
    optimizer = AdaBelief([parameter], lr=0.01, betas=(0.8, 0.9), eps=1e-8, weight_decay=0.1)
    limit = 2 / (1 - 0.9) - 1
    rectified = 0
    for t in range(1, 9):
        gradient = draw()
        parameter.grad = gradient.clone()
        optimizer.step()

        weight = weight * (1 - 0.01 * 0.1)
        m = 0.8 * m + 0.2 * gradient
        s = 0.9 * s + 0.1 * (gradient - m) ** 2 + 1e-8
        length = limit - 2 * t * 0.9**t / (1 - 0.9**t)
        if length < 5:
            weight = weight - 0.01 * m / (1 - 0.8**t)
        else:
            rectified += 1
            k = (1 - 0.9**t) * (length - 4) / (limit - 4) * (length - 2) / length * limit / (limit - 2)
            weight = weight - 0.01 * math.sqrt(k) / (1 - 0.8**t) * m / (s.sqrt() + 1e-8)
        torch.testing.assert_close(parameter.detach(), weight, rtol=0, atol=1e-13)
    assert 0 < rectified < 8
    torch.testing.assert_close(optimizer.state[parameter]["exp_avg_var"], s, rtol=0, atol=1e-13)


@given(st.integers(1, 10**7), st.floats(0.0, 0.999), st.floats(0.0, 0.99999))
def test_the_factor_is_there_once_enough_was_seen_and_never_goes_back(count: int, beta1: float, beta2: float) -> None:
    now, then = rectification(count, beta1, beta2), rectification(count + 1, beta1, beta2)

    if now is not None:
        assert then is not None
        assert 0 < now < math.inf
        assert now * (1 - beta1**count) <= then * (1 - beta1 ** (count + 1)) * (1 + 1e-9)
        assert now * (1 - beta1**count) <= 1 + 1e-9


def test_the_factor_of_the_usual_betas() -> None:
    assert [rectification(count, 0.9, 0.999) is None for count in range(1, 8)] == [True] * 5 + [False] * 2
    late = rectification(100_000, 0.9, 0.999)
    assert late == pytest.approx(1.0)


def test_a_parameter_that_joins_later_counts_for_itself() -> None:
    early, late = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimizer = AdaBelief([early, late], lr=0.5)
    for _ in range(2):
        early.grad = torch.ones(1)
        optimizer.step()
    late.grad = torch.ones(1)
    optimizer.step()

    assert [float(optimizer.state[parameter]["step"]) for parameter in (early, late)] == [3, 1]
    assert late.item() == pytest.approx(-0.5)


def test_a_large_epsilon_is_warned_of_and_a_small_one_is_not(caplog: pytest.LogCaptureFixture) -> None:
    layer = nn.Linear(2, 2)
    with caplog.at_level(logging.WARNING, logger="ostinato.optim.adabelief"):
        build_optimizer(layer.named_parameters(), OptimizerOptions(optimizer="adabelief", epsilon_exponent=-16))
        assert caplog.messages == []
        build_optimizer(layer.named_parameters(), OptimizerOptions(optimizer="adabelief"))

    assert len(caplog.messages) == 1
    assert "epsilon_exponent to about -16 (it is -7)" in caplog.messages[0]
