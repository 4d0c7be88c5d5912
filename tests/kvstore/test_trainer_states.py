"""States by name: any order of calls, parameters, replicas and stores; and the file they are kept in."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from kvstore_stand_ins import backward_all, make, two_parameters, values
from torch import nn
from torch.nn import Parameter

from ostinato.errors import ArgumentValueError, BadInputError
from ostinato.kvstore import LossScaler, ParameterTrainer, replica_parameters
from ostinato.kvstore.trainer_state_files import read_states, write_states
from ostinato.optim.rate_schedules import CosineSchedule, FactorSchedule
from ostinato.optim.rules import SGD, registered_names
from ostinato.runs.tree import pack_tree, unpack_tree

MODES: list[tuple[int, str | None, bool | None]] = [
    (1, "device", None),
    (2, None, None),
    (2, "device", False),
    (2, "device", True),
    (3, "local", True),
]
"""Replicas, store, and whether it updates."""


def through_json(state: Any) -> Any:
    """As a run folder keeps it."""
    packed, tensors = pack_tree(state)
    return unpack_tree(json.loads(json.dumps(packed)), {name: t.clone() for name, t in tensors.items()})


def all_of(state: Any) -> Any:
    """Everything in a state, to be compared."""
    packed, tensors = pack_tree(state)
    return json.dumps(packed), {name: tensor.tolist() for name, tensor in tensors.items()}


def steps(trainer: ParameterTrainer, weights: dict[str, list[Parameter]], count: int) -> None:
    for _ in range(count):
        trainer.zero_grad()
        for name, replicas in weights.items():
            for replica in replicas:
                ((replica - len(name)) * 0.5).square().sum().div(len(replicas)).backward()
        trainer.step(1)


def copied(weights: dict[str, list[Parameter]], replicas: int) -> dict[str, list[Parameter]]:
    return {name: [Parameter(w[0].detach().clone()) for _ in range(replicas)] for name, w in weights.items()}


@pytest.mark.parametrize("name", sorted(set(registered_names()) - {"groupadagrad", "sgld"}))
def test_every_optimizer_goes_on_exactly_from_a_file(name: str, tmp_path: Path) -> None:
    settings = {"learning_rate": 0.05, "lr_scheduler": None}
    straight, weights = two_parameters(1), two_parameters(1)
    steps(make(straight, name, optimizer_params=settings), straight, 6)
    first = make(weights, name, optimizer_params=settings)
    steps(first, weights, 3)
    first.save_states(tmp_path / "x.states")
    second = make(weights, name, optimizer_params={})
    second.load_states(tmp_path / "x.states")
    steps(second, weights, 3)
    assert [values(w) for w in weights.values()] == [values(w) for w in straight.values()]


@pytest.mark.parametrize("source", MODES)
@pytest.mark.parametrize("target", MODES)
def test_a_state_goes_on_with_any_number_of_replicas_and_any_store(source: Any, target: Any) -> None:
    def run(first: Any, second: Any) -> list[list[float]]:
        weights = two_parameters(first[0])
        settings = {"learning_rate": 0.05, "wd": 0.01}
        trainer = make(weights, "adam", optimizer_params=settings, kvstore=first[1], update_on_kvstore=first[2])
        steps(trainer, weights, 3)
        if second is not None:
            state = through_json(trainer.state_dict())
            weights = copied(weights, second[0])
            trainer = make(weights, "adam", optimizer_params=settings, kvstore=second[1], update_on_kvstore=second[2])
            trainer.load_state_dict(state)
        steps(trainer, weights, 3)
        return [w[0].tolist() for w in weights.values()]

    for found, expected in zip(run(source, target), run(source, None), strict=True):
        assert found == pytest.approx(expected, abs=1e-5)


def test_everything_of_the_optimizer_is_restored_and_multipliers_are_not() -> None:
    weights = two_parameters(1)
    schedule = FactorSchedule(step=2, factor=0.5, base_lr=0.2)
    first = make(
        weights, "sgd", optimizer_params={"momentum": 0.8, "wd": 0.1, "clip_gradient": 5.0, "lr_scheduler": schedule}
    )
    first.set_multipliers(lr_mult={"a": 0.5})
    steps(first, weights, 5)
    state = through_json(first.state_dict())
    second = make(two_parameters(1), "sgd")
    second.load_state_dict(state)
    optimizer = second.optimizer
    assert (optimizer.momentum, optimizer.wd, optimizer.clip_gradient, optimizer.num_update) == (0.8, 0.1, 5.0, 5)
    assert second.learning_rate == first.learning_rate == 0.05
    assert second.parameters["a"].lr_mult == 1.0


def test_states_survive_another_order_of_parameters() -> None:
    weights = two_parameters(1)
    settings = {"learning_rate": 0.1, "momentum": 0.9}
    first = make([("a", weights["a"][0]), ("b", weights["b"][0])], optimizer_params=settings)
    steps(first, weights, 2)
    second = make([("b", weights["b"][0]), ("a", weights["a"][0])], optimizer_params=settings)
    second.load_state_dict(first.state_dict())
    other = copied(weights, 1)
    third = make([("a", other["a"][0]), ("b", other["b"][0])], optimizer_params=settings)
    third.load_state_dict(first.state_dict())
    steps(second, weights, 2)
    steps(third, other, 2)
    assert [values(w) for w in weights.values()] == [values(w) for w in other.values()]


def test_a_parameter_more_starts_fresh_and_one_less_is_passed_over_and_both_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    weights = two_parameters(1)
    first = make(weights, optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    steps(first, weights, 2)
    fewer = {"b": weights["b"], "c": [Parameter(torch.zeros(3))]}
    second = make(fewer, optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    with caplog.at_level(logging.WARNING):
        second.load_state_dict(first.state_dict())
    assert "saved for 'c'" in caplog.text
    assert "state of 'a' is not used" in caplog.text
    steps(second, fewer, 1)
    assert second.state_dict()["counts"] == {"b": 3, "c": 1}


def test_a_parameter_that_is_frozen_now_takes_its_state_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    weights = two_parameters(1)
    first = make(weights, optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    steps(first, weights, 2)
    weights["a"][0].requires_grad_(False)
    second = make(weights, optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    with caplog.at_level(logging.WARNING):
        second.load_state_dict(first.state_dict())
    assert caplog.text == ""
    assert set(second.state_dict()["counts"]) == {"a", "b"}


@pytest.mark.parametrize("on_store", [True, False])
def test_a_state_may_come_before_the_first_step_and_twice(on_store: bool) -> None:
    straight, weights = two_parameters(), two_parameters()
    settings = {"learning_rate": 0.1, "momentum": 0.9}
    steps(make(straight, optimizer_params=settings, update_on_kvstore=on_store), straight, 4)
    first = make(weights, optimizer_params=settings, update_on_kvstore=on_store)
    steps(first, weights, 2)
    state = first.state_dict()
    second = make(weights, optimizer_params=settings, update_on_kvstore=on_store)
    for _ in range(2):
        second.load_state_dict(state)
        assert second.state_dict()["counts"] == {"a": 2, "b": 2}, "what waits for the first step is state already"
    steps(second, weights, 2)
    assert [values(w) for w in weights.values()] == [values(w) for w in straight.values()]


def test_a_state_may_come_before_lazy_shapes_are_known() -> None:
    def net(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.LazyLinear(3), nn.LazyLinear(1))

    def train(model: nn.Module, trainer: ParameterTrainer, count: int) -> None:
        for _ in range(count):
            trainer.zero_grad()
            model(torch.ones(2, 2)).square().sum().backward()
            trainer.step(1)

    one = net(0)
    first = make(dict(one.named_parameters()), "adam")
    train(one, first, 2)
    state, weights = through_json(first.state_dict()), copy.deepcopy(one.state_dict())
    other = net(1)
    second = make(dict(other.named_parameters()), "adam")
    second.load_state_dict(state)
    second.open()
    assert second.state_dict()["counts"] == {f"{n}.{part}": 2 for n in (0, 1) for part in ("bias", "weight")}
    other(torch.ones(2, 2))
    other.load_state_dict(weights)
    train(one, first, 2)
    train(other, second, 2)
    for found, expected in zip(other.parameters(), one.parameters(), strict=True):
        assert torch.equal(found, expected)


def test_a_rate_that_was_set_after_loading_stays() -> None:
    weights = two_parameters(1)
    first = make(weights)
    steps(first, weights, 1)
    second = make(weights)
    second.load_state_dict(first.state_dict())
    second.set_learning_rate(0.5)
    steps(second, weights, 1)
    assert second.learning_rate == 0.5


def test_the_loss_scaler_and_residuals_are_part_of_the_state() -> None:
    weights = two_parameters()
    first = make(weights, compression_params={"type": "2bit", "threshold": 10.0})
    first.loss_scaler = LossScaler(64.0, window=5)
    steps(first, weights, 2)
    state = through_json(first.state_dict())
    second = make({"b": weights["b"], "a": weights["a"]}, compression_params={"type": "2bit", "threshold": 10.0})
    second.loss_scaler = LossScaler(2.0, window=5)
    second.load_state_dict(state)
    assert (second.loss_scaler.loss_scale, second.loss_scaler.clean_steps) == (64.0, 2)
    second.open()
    assert second.state_dict()["residuals"][1]["residuals"]["b"].item() != 0.0
    for found, expected in zip(second.state_dict()["residuals"], state["residuals"], strict=True):
        assert all(torch.equal(found["residuals"][n], expected["residuals"][n]) for n in ("a", "b"))


# --- loads that fail ----------------------------------------------------------------------------------------------


def spoiled(kind: str, state: dict[str, Any]) -> dict[str, Any]:
    state = copy.deepcopy(state)
    if kind == "format":
        state["format"] = 7
    elif kind == "optimizer":
        weights = two_parameters(1)
        other = make(weights, "adam")
        steps(other, weights, 1)
        return other.state_dict()
    elif kind == "shape":
        state["states"]["b"]["momentum"] = torch.zeros(7)
    elif kind == "missing":
        del state["states"]["b"]["momentum"]
    return state


@pytest.mark.parametrize(
    ("kind", "match"),
    [("format", "format 7"), ("optimizer", "adam.*sgd"), ("shape", "'b'.*(7,)"), ("missing", "'b'.*momentum")],
)
@pytest.mark.parametrize("opened", [True, False])
def test_a_failed_load_changes_nothing_and_names_both_sides(kind: str, match: str, opened: bool) -> None:
    weights = two_parameters(1)
    schedule = CosineSchedule(max_update=10, base_lr=0.3)
    trainer = make(weights, optimizer_params={"momentum": 0.9, "lr_scheduler": schedule})
    if opened:
        steps(trainer, weights, 2)
    other_weights = two_parameters(1)
    other = make(other_weights, optimizer_params={"learning_rate": 7.0, "momentum": 0.5})
    steps(other, other_weights, 1)
    before = all_of(trainer.state_dict())
    with pytest.raises(ArgumentValueError, match=match):
        trainer.load_state_dict(spoiled(kind, other.state_dict()))
    assert all_of(trainer.state_dict()) == before
    assert trainer.optimizer.lr_scheduler is schedule


# --- the file -------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    weights = two_parameters(1)
    trainer = make(weights, "adam")
    steps(trainer, weights, 1)
    trainer.save_states(tmp_path / "x.states")
    return tmp_path / "x.states"


def test_a_file_replaces_the_one_before_in_one_step(file: Path) -> None:
    state = read_states(file, SGD(), [])
    write_states(file, {**state, "counts": {"a": 9}})
    assert read_states(file, SGD(), [])["counts"] == {"a": 9}
    assert [path.name for path in file.parent.iterdir()] == ["x.states"]


def test_a_file_is_in_the_safetensors_format(file: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    tensors = library.load_file(file)
    assert {name.rsplit(".", 1)[0] for name in tensors} == {"states.a", "states.b"}
    assert {tuple(tensor.shape) for tensor in tensors.values()} == {(2,), (1,)}


def test_every_damaged_byte_is_noticed(file: Path) -> None:
    whole = file.read_bytes()
    places = range(0, len(whole), 37)
    for place in places:
        broken = bytearray(whole)
        broken[place] ^= 1
        file.write_bytes(broken)
        with pytest.raises(BadInputError, match="cannot be read"):
            read_states(file, SGD(), [])
    for cut in (0, 7, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(BadInputError, match="cannot be read"):
            read_states(file, SGD(), [])
    file.write_bytes(bytes(len(whole)))
    with pytest.raises(BadInputError, match="cannot be read"):
        read_states(file, SGD(), [])


def test_a_file_that_is_not_there_and_one_of_something_else(tmp_path: Path) -> None:
    trainer = make(two_parameters(1))
    with pytest.raises(BadInputError, match="cannot be read"):
        trainer.load_states(tmp_path / "none.states")
    (tmp_path / "text.states").write_text("<html>Not Found</html>" * 20)
    with pytest.raises(BadInputError, match="cannot be read"):
        trainer.load_states(tmp_path / "text.states")
    library = pytest.importorskip("safetensors.torch")
    library.save_file({"weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(BadInputError, match="no state of a trainer"):
        trainer.load_states(tmp_path / "model.safetensors")


def test_a_failed_load_from_a_file_changes_nothing(tmp_path: Path) -> None:
    weights = two_parameters(1)
    trainer = make(weights, optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    steps(trainer, weights, 1)
    before = all_of(trainer.state_dict())
    with pytest.raises(BadInputError):
        trainer.load_states(tmp_path / "none.states")
    assert all_of(trainer.state_dict()) == before


def test_replicas_of_a_model_save_one_state(tmp_path: Path) -> None:
    copies = [nn.Linear(2, 1) for _ in range(2)]
    trainer = make(replica_parameters(copies), "adam", update_on_kvstore=False)
    backward_all(replica_parameters(copies))
    trainer.step(1)
    assert set(trainer.state_dict()["states"]) == {"weight", "bias"}


def test_a_state_that_waits_for_the_first_step_is_a_copy() -> None:
    weights = two_parameters(1)
    first = make(weights, optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    steps(first, weights, 2)
    expected = all_of(first.state_dict())
    second = make(two_parameters(1), optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    second.load_state_dict(first.state_dict())
    steps(first, weights, 2)
    second.open()
    assert all_of(second.state_dict()) == expected


@pytest.mark.parametrize("groups", [1, 2])
def test_an_optimizer_of_torch_goes_on_exactly(groups: int) -> None:
    def trainer_of(weights: dict[str, list[Parameter]]) -> ParameterTrainer:
        given = [replicas[0] for replicas in weights.values()]
        made = [{"params": given}] if groups == 1 else [{"params": [p], "lr": 0.1 * n} for n, p in enumerate(given, 1)]
        return ParameterTrainer(weights, torch.optim.AdamW(made, lr=0.2, weight_decay=0.1))

    weights = two_parameters(1)
    first = trainer_of(weights)
    steps(first, weights, 3)
    others = copied(weights, 1)
    second = trainer_of(others)
    second.load_state_dict(through_json(first.state_dict()))
    steps(first, weights, 3)
    steps(second, others, 3)
    assert [values(w) for w in others.values()] == [values(w) for w in weights.values()]
