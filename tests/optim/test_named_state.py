from __future__ import annotations

import pytest
import torch
from torch import nn

from ostinato.config import OptimizerOptions
from ostinato.errors import ArgumentValueError
from ostinato.optim import build_optimizer, load_optimizer_state_by_name, optimizer_state_by_name


def make(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 2))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 2, 4, 4, generator=generator)).square().mean().backward()
        optimizer.step()


def copied(state: dict) -> dict:
    entries = {n: {k: v.clone() for k, v in entry.items()} for n, entry in state["state"].items()}
    return {**state, "state": entries}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_resumed_run_equals_a_straight_one_bit_for_bit(layout: torch.memory_format) -> None:
    straight = make().to(memory_format=layout)
    optimizer = build_optimizer(straight.named_parameters(), OptimizerOptions(learning_rate=0.01))
    train(straight, optimizer, 5, seed=1)
    weights = {name: value.clone() for name, value in straight.state_dict().items()}
    saved = copied(optimizer_state_by_name(optimizer, straight.named_parameters()))
    # A file has one layout, whatever the model has.
    saved["state"] = {n: {k: v.contiguous() for k, v in e.items()} for n, e in saved["state"].items()}
    train(straight, optimizer, 5, seed=2)

    resumed = make(seed=9).to(memory_format=layout)
    resumed.load_state_dict(weights)
    optimizer = build_optimizer(resumed.named_parameters(), OptimizerOptions(learning_rate=0.01))
    report = load_optimizer_state_by_name(optimizer, resumed.named_parameters(), saved)
    train(resumed, optimizer, 5, seed=2)

    assert report.is_exact
    assert report.describe() == ""
    for name, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_freezing_a_layer_keeps_the_state_of_the_others() -> None:
    model = make()
    optimizer = build_optimizer(model.named_parameters(), OptimizerOptions())
    train(model, optimizer, 2, seed=1)
    saved = copied(optimizer_state_by_name(optimizer, model.named_parameters()))

    model[0].requires_grad_(False)
    optimizer = build_optimizer(model.named_parameters(), OptimizerOptions())
    report = load_optimizer_state_by_name(optimizer, model.named_parameters(), saved)

    assert report.loaded == ("2.weight", "2.bias")
    assert report.unused == ("0.weight", "0.bias")
    assert report.fresh == ()
    assert torch.equal(optimizer.state[model[2].weight]["exp_avg"], saved["state"]["2.weight"]["exp_avg"])
    assert "no longer used: 0.weight, 0.bias" in report.describe()


def test_new_and_reshaped_parameters_start_fresh_and_are_named() -> None:
    model = make()
    optimizer = build_optimizer(model.named_parameters(), OptimizerOptions())
    train(model, optimizer, 1, seed=1)
    saved = copied(optimizer_state_by_name(optimizer, model.named_parameters()))
    del saved["state"]["0.bias"]

    wider = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 5))
    optimizer = build_optimizer(wider.named_parameters(), OptimizerOptions())
    report = load_optimizer_state_by_name(optimizer, wider.named_parameters(), saved)

    assert set(report.fresh) == {"0.bias", "2.weight", "2.bias"}
    assert set(report.unused) == {"2.weight", "2.bias"}
    assert "(2, 12)" in report.reasons["2.weight"]
    assert not report.is_exact
    train(wider, optimizer, 1, seed=1)


def test_the_state_of_another_optimizer_fits_nobody() -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    train(model, optimizer, 1, seed=1)
    saved = copied(optimizer_state_by_name(optimizer, model.named_parameters()))

    adam = build_optimizer(model.named_parameters(), OptimizerOptions())
    report = load_optimizer_state_by_name(adam, model.named_parameters(), saved)

    assert report.loaded == ()
    assert len(report.unused) == 4
    assert "SGD" in report.describe()
    assert not adam.state


def test_maxima_that_were_not_saved_start_at_the_second_moment() -> None:
    model = make()
    optimizer = build_optimizer(model.named_parameters(), OptimizerOptions())
    train(model, optimizer, 1, seed=1)
    saved = copied(optimizer_state_by_name(optimizer, model.named_parameters()))

    optimizer = build_optimizer(model.named_parameters(), OptimizerOptions(ada_amsgrad=True))
    load_optimizer_state_by_name(optimizer, model.named_parameters(), saved)

    entry = optimizer.state[model[2].weight]
    assert torch.equal(entry["max_exp_avg_sq"], entry["exp_avg_sq"])
    train(model, optimizer, 1, seed=2)


def test_incomplete_state_is_not_taken() -> None:
    model = make()
    optimizer = build_optimizer(model.named_parameters(), OptimizerOptions())
    train(model, optimizer, 1, seed=1)
    saved = copied(optimizer_state_by_name(optimizer, model.named_parameters()))
    del saved["state"]["0.weight"]["exp_avg_sq"]

    report = load_optimizer_state_by_name(optimizer, model.named_parameters(), saved)

    assert "0.weight" in report.fresh
    assert "exp_avg_sq" in report.describe()
    train(model, optimizer, 1, seed=2)


@pytest.mark.parametrize("wrong", [3, None, {"step": 1.0}, {"exp_avg_sq": None}, {"exp_avg": []}])
def test_state_that_is_no_tensor_is_not_taken(wrong: object) -> None:
    model = make()
    optimizer = build_optimizer(model.named_parameters(), OptimizerOptions(learning_rate=0.01))
    train(model, optimizer, 2, seed=1)
    saved = copied(optimizer_state_by_name(optimizer, model.named_parameters()))
    entry = saved["state"]["0.weight"]
    saved["state"]["0.weight"] = {**entry, **wrong} if isinstance(wrong, dict) else wrong

    report = load_optimizer_state_by_name(optimizer, model.named_parameters(), saved)

    assert report.fresh == ("0.weight",)
    train(model, optimizer, 1, seed=2)


def test_loading_copies() -> None:
    model = make()
    optimizer = build_optimizer(model.named_parameters(), OptimizerOptions())
    train(model, optimizer, 1, seed=1)
    saved = copied(optimizer_state_by_name(optimizer, model.named_parameters()))
    before = copied(saved)

    load_optimizer_state_by_name(optimizer, model.named_parameters(), saved)
    train(model, optimizer, 1, seed=2)

    for name, entry in before["state"].items():
        for key, value in entry.items():
            assert torch.equal(value, saved["state"][name][key])


def test_arrays_of_numpy_are_taken() -> None:
    model = make()
    optimizer = build_optimizer(model.named_parameters(), OptimizerOptions())
    train(model, optimizer, 1, seed=1)
    saved = optimizer_state_by_name(optimizer, model.named_parameters())
    arrays = {n: {k: v.numpy().copy() for k, v in e.items()} for n, e in saved["state"].items()}

    report = load_optimizer_state_by_name(optimizer, model.named_parameters(), {**saved, "state": arrays})

    assert report.is_exact
    train(model, optimizer, 1, seed=2)


def test_a_parameter_without_a_name_is_an_error() -> None:
    model = make()
    optimizer = build_optimizer(model.named_parameters(), OptimizerOptions())

    with pytest.raises(ArgumentValueError, match="no name"):
        optimizer_state_by_name(optimizer, model[0].named_parameters())


def test_an_unknown_format_changes_nothing() -> None:
    model = make()
    optimizer = build_optimizer(model.named_parameters(), OptimizerOptions())
    train(model, optimizer, 1, seed=1)
    before = dict(optimizer.state)

    with pytest.raises(ArgumentValueError, match="format 2"):
        load_optimizer_state_by_name(optimizer, model.named_parameters(), {"format": 2})

    assert dict(optimizer.state) == before
