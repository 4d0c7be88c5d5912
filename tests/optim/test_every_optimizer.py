"""What holds for every optimizer that the options can name."""

from __future__ import annotations

import copy
import json
from typing import Any, get_args

import pytest
import torch
from torch import nn

from ostinato.config import OptimizerOptions
from ostinato.optim import (
    apply_updatable,
    build_optimizer,
    load_optimizer_state_by_name,
    optimizer_names,
    optimizer_state_by_name,
)
from ostinato.runs.tree import pack_tree, unpack_tree

NAMES = optimizer_names()
WITH_AMSGRAD = [(name, False) for name in NAMES] + [("adam", True), ("adamw", True)]


def options_of(name: str, **more: Any) -> OptimizerOptions:
    defaults: dict[str, Any] = {"learning_rate": 0.01, "weight_decay": 0.05}
    if name == "adabelief":
        defaults["epsilon_exponent"] = -16
    return OptimizerOptions(optimizer=name, **{**defaults, **more})  # type: ignore[arg-type]


def make(seed: int = 0, layout: torch.memory_format = torch.contiguous_format) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 2)).to(memory_format=layout)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 2, 4, 4, generator=generator)).square().mean().backward()
        optimizer.step()


def saved(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """Weights and the optimizer's state as they come back from a run folder, in the one layout that a file has."""
    tree = {"model": model.state_dict(), "optimizer": optimizer_state_by_name(optimizer, model.named_parameters())}
    packed, tensors = pack_tree(tree)
    written = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    back = unpack_tree(json.loads(json.dumps(packed, allow_nan=False)), written)
    return back["model"], back["optimizer"]


def test_every_choice_of_the_options_is_built() -> None:
    assert set(NAMES) == set(get_args(OptimizerOptions.model_fields["optimizer"].annotation))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("name", "amsgrad"), WITH_AMSGRAD)
def test_ten_steps_a_save_and_ten_more_equal_twenty_bit_for_bit(
    name: str, amsgrad: bool, layout: torch.memory_format
) -> None:
    options = options_of(name, ada_amsgrad=amsgrad)
    straight = make(layout=layout)
    optimizer = build_optimizer(straight.named_parameters(), options)
    train(straight, optimizer, 10, seed=1)
    weights, state = saved(straight, optimizer)
    train(straight, optimizer, 10, seed=2)

    resumed = make(seed=9, layout=layout)
    resumed.load_state_dict(weights)
    optimizer = build_optimizer(resumed.named_parameters(), options)
    report = load_optimizer_state_by_name(optimizer, resumed.named_parameters(), state)
    apply_updatable(optimizer, options)
    train(resumed, optimizer, 10, seed=2)

    assert report.is_exact
    for key, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_that_is_frozen_on_resume_leaves_the_others_exact(name: str) -> None:
    options = options_of(name)
    straight = make()
    optimizer = build_optimizer(straight.named_parameters(), options)
    train(straight, optimizer, 10, seed=1)
    weights, state = saved(straight, optimizer)
    straight[0].requires_grad_(False)
    train(straight, optimizer, 10, seed=2)

    resumed = make(seed=9)
    resumed.load_state_dict(weights)
    resumed[0].requires_grad_(False)
    optimizer = build_optimizer(resumed.named_parameters(), options)
    report = load_optimizer_state_by_name(optimizer, resumed.named_parameters(), state)
    train(resumed, optimizer, 10, seed=2)

    assert report.loaded == ("2.weight", "2.bias")
    assert report.unused == ("0.weight", "0.bias")
    for key, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_that_is_thawed_on_resume_starts_fresh_beside_the_others(name: str) -> None:
    options = options_of(name)
    model = make()
    model[0].requires_grad_(False)
    optimizer = build_optimizer(model.named_parameters(), options)
    train(model, optimizer, 10, seed=1)
    weights, state = saved(model, optimizer)

    thawed = make(seed=9)
    thawed.load_state_dict(weights)
    optimizer = build_optimizer(thawed.named_parameters(), options)
    report = load_optimizer_state_by_name(optimizer, thawed.named_parameters(), state)

    assert report.loaded == ("2.weight", "2.bias")
    assert report.fresh == ("0.weight", "0.bias")
    assert thawed.get_parameter("0.weight") not in optimizer.state
    train(thawed, optimizer, 3, seed=2)
    assert all(bool(parameter.isfinite().all()) for parameter in thawed.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_changed_options_act_in_the_first_step_after_loading(name: str) -> None:
    model = make()
    old = options_of(name, learning_rate=1e-3, weight_decay=0.0)
    optimizer = build_optimizer(model.named_parameters(), old)
    train(model, optimizer, 3, seed=1)
    weights, state = saved(model, optimizer)
    new = options_of(name, learning_rate=0.03, weight_decay=0.4, epsilon_exponent=-2)

    results = []
    for built_with in (new, old):
        resumed = make(seed=9)
        resumed.load_state_dict(weights)
        optimizer = build_optimizer(resumed.named_parameters(), built_with)
        load_optimizer_state_by_name(optimizer, resumed.named_parameters(), state)
        apply_updatable(optimizer, new)
        train(resumed, optimizer, 1, seed=2)
        results.append(resumed.state_dict())

    for key, value in results[0].items():
        assert torch.equal(value, results[1][key]), key


@pytest.mark.parametrize("name", NAMES)
def test_weight_decay_pulls_kernels_and_leaves_biases_alone(name: str) -> None:
    """Without gradients nothing but decay moves a weight."""
    model = make()
    optimizer = build_optimizer(model.named_parameters(), options_of(name, weight_decay=0.5))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()

    for key, value in model.state_dict().items():
        if key.endswith("bias"):
            assert torch.equal(value, before[key]), key
        else:
            assert value.norm() < before[key].norm(), key


@pytest.mark.parametrize("name", NAMES)
def test_an_incomplete_or_misshapen_state_is_not_taken(name: str) -> None:
    model = make()
    optimizer = build_optimizer(model.named_parameters(), options_of(name))
    train(model, optimizer, 1, seed=1)
    _, state = saved(model, optimizer)
    for key in list(state["state"]["0.weight"]):
        entries = {n: dict(entry) for n, entry in state["state"].items()}
        del entries["0.weight"][key]
        entries["2.weight"][key] = torch.zeros(3)

        report = load_optimizer_state_by_name(optimizer, model.named_parameters(), {**state, "state": entries})

        assert set(report.fresh) == {"0.weight", "2.weight"}, key
        train(model, optimizer, 1, seed=2)


@pytest.mark.parametrize("name", NAMES)
def test_what_another_program_kept_besides_is_dropped(name: str) -> None:
    model = make()
    optimizer = build_optimizer(model.named_parameters(), options_of(name))
    train(model, optimizer, 1, seed=1)
    _, state = saved(model, optimizer)
    for entry in state["state"].values():
        entry["max_exp_avg_var"] = torch.zeros(())

    report = load_optimizer_state_by_name(optimizer, model.named_parameters(), state)

    assert report.is_exact
    assert not any("max_exp_avg_var" in entry for entry in optimizer.state.values())


@pytest.mark.parametrize("name", NAMES)
def test_counters_keep_their_own_type_whatever_the_parameter_s_shape_and_type(name: str) -> None:
    """A scalar parameter has the shape of a counter, and nothing else of it."""
    scale = nn.Parameter(torch.ones((), dtype=torch.float64))
    optimizer = build_optimizer([("scale", scale)], options_of(name))
    scale.grad = torch.ones_like(scale)
    optimizer.step()
    before = {key: value.clone() for key, value in optimizer.state[scale].items()}

    load_optimizer_state_by_name(optimizer, [("scale", scale)], optimizer_state_by_name(optimizer, [("scale", scale)]))

    after = optimizer.state[scale]
    assert after.keys() == before.keys()
    for key, value in before.items():
        assert (after[key].dtype, after[key].device) == (value.dtype, value.device), key
        assert torch.equal(after[key], value), key


@pytest.mark.parametrize("name", ["lion", "adabelief"])
def test_state_in_float32_of_a_parameter_of_16_bits_keeps_its_bits(name: str) -> None:
    weight = nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16))
    optimizer = build_optimizer([("weight", weight)], options_of(name))
    weight.grad = torch.full_like(weight, 0.3)
    optimizer.step()
    before = optimizer.state[weight]["exp_avg"].clone()

    load_optimizer_state_by_name(
        optimizer, [("weight", weight)], optimizer_state_by_name(optimizer, [("weight", weight)])
    )

    assert before.dtype == torch.float32
    assert torch.equal(optimizer.state[weight]["exp_avg"], before)


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_without_gradient_is_left_alone(name: str) -> None:
    model = make()
    optimizer = build_optimizer(model.named_parameters(), options_of(name))
    left_alone, moved = model.get_parameter("0.weight"), model.get_parameter("2.weight")
    before = left_alone.detach().clone()
    moved.grad = torch.ones_like(moved)
    optimizer.step()

    assert torch.equal(left_alone, before)
    assert left_alone not in optimizer.state
    assert moved in optimizer.state


@pytest.mark.parametrize("name", NAMES)
def test_torch_s_own_form_of_state_continues_too(name: str) -> None:
    """Schedules and tools of others rely on it."""
    first, second = make(), make()
    optimizers = [build_optimizer(model.named_parameters(), options_of(name)) for model in (first, second)]
    train(first, optimizers[0], 3, seed=1)
    second.load_state_dict(first.state_dict())
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    for model, optimizer in zip((first, second), optimizers, strict=True):
        train(model, optimizer, 3, seed=2)

    assert torch.equal(first.get_parameter("2.weight"), second.get_parameter("2.weight"))


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_scaler_leaves_out_steps_that_overflow(name: str) -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = build_optimizer([("weight", weight)], options_of(name, weight_decay=0.0))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    moved = []
    for factor in (1.0, float("inf"), 1.0):
        before = weight.detach().clone()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        moved.append(not torch.equal(weight, before))

    assert moved == [True, False, True]
    assert scaler.get_scale() == 2.0
    if name != "lion":
        assert float(optimizer.state[weight]["step"]) == 2
