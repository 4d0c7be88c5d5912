from __future__ import annotations

import pytest
import torch
from torch import nn

from ostinato.config import OptimizerOptions
from ostinato.errors import ArgumentValueError
from ostinato.optim import apply_updatable, build_optimizer, set_learning_rate


def test_options_reach_the_optimizer() -> None:
    options = OptimizerOptions(
        learning_rate=3e-5, epsilon_exponent=-5, weight_decay=0.01, ada_beta_1=0.5, ada_beta_2=0.99, ada_amsgrad=True
    )

    optimizer = build_optimizer(nn.Linear(2, 2).named_parameters(), options)

    assert isinstance(optimizer, torch.optim.Adam)
    decayed, kept = optimizer.param_groups
    assert decayed["weight_decay"] == 0.01
    assert kept["weight_decay"] == 0.0
    for group in (decayed, kept):
        assert group["lr"] == 3e-5
        assert group["eps"] == pytest.approx(1e-5)
        assert tuple(group["betas"]) == (0.5, 0.99)
        assert group["amsgrad"]


def test_a_model_with_nothing_to_train_is_refused() -> None:
    layer = nn.Linear(2, 2).requires_grad_(False)

    with pytest.raises(ArgumentValueError, match="frozen"):
        build_optimizer(layer.named_parameters(), OptimizerOptions())


def test_an_unknown_name_lists_the_known_ones() -> None:
    options = OptimizerOptions.model_construct(**{**OptimizerOptions().model_dump(), "optimizer": "adamm"})

    with pytest.raises(ArgumentValueError, match=r"'adamm'.*adam"):
        build_optimizer(nn.Linear(2, 2).named_parameters(), options)


def test_changed_options_act_in_the_first_step_after_loading_state() -> None:
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    second.load_state_dict(first.state_dict())
    old = OptimizerOptions(learning_rate=1e-3)
    new = OptimizerOptions(learning_rate=0.1, epsilon_exponent=-2, weight_decay=0.5)
    trained = build_optimizer(first.named_parameters(), old)
    gradients = [torch.randn_like(p) for p in first.parameters()]

    resumed = build_optimizer(second.named_parameters(), new)
    resumed.load_state_dict(trained.state_dict())
    assert resumed.param_groups[0]["lr"] == 1e-3  # torch lets the saved options win
    apply_updatable(resumed, new)
    expected = build_optimizer(first.named_parameters(), new)
    for layer, optimizer in ((first, expected), (second, resumed)):
        for parameter, gradient in zip(layer.parameters(), gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()

    assert torch.equal(first.weight, second.weight)
    assert torch.equal(first.bias, second.bias)


def test_the_no_decay_group_keeps_no_decay_when_options_change() -> None:
    optimizer = build_optimizer(nn.Linear(2, 2).named_parameters(), OptimizerOptions())

    apply_updatable(optimizer, OptimizerOptions(weight_decay=0.3))

    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0]


def test_the_learning_rate_is_set_in_every_group() -> None:
    optimizer = build_optimizer(nn.Linear(2, 2).named_parameters(), OptimizerOptions())

    set_learning_rate(optimizer, 0.25)

    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_one_step_equals_adam_written_out(layout: torch.memory_format) -> None:
    layer = nn.Conv2d(3, 4, 3).to(memory_format=layout)
    options = OptimizerOptions(learning_rate=0.01, weight_decay=0.1)
    optimizer = build_optimizer(layer.named_parameters(), options)
    x = torch.randn(2, 3, 6, 6)
    expected = layer.weight.detach().clone()
    m, v = torch.zeros_like(expected), torch.zeros_like(expected)
    for t in (1, 2, 3):
        optimizer.zero_grad()
        layer(x).square().sum().backward()
        assert layer.weight.grad is not None
        gradient = layer.weight.grad + 0.1 * expected
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        expected = expected - 0.01 / (1 - 0.9**t) * m / ((v / (1 - 0.999**t)).sqrt() + 1e-7)
        optimizer.step()
        torch.testing.assert_close(layer.weight.detach(), expected, rtol=1e-5, atol=1e-6)
