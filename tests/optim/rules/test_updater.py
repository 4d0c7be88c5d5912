"""One replica's states and counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.errors import ArgumentValueError
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Optimizer, Updater, create, registered_names
from ostinato.runs.tree import pack_tree, unpack_tree


def trained(name: str, steps: int = 3, **arguments: Any) -> tuple[Updater, list[Tensor]]:
    updater, weights = Updater(create(name, **arguments)), [torch.ones(2, 3), torch.ones(4, 1)]
    for number in range(steps):
        updater([0, 1], [torch.full_like(w, 0.1 * number + 0.1) for w in weights], weights)
    return updater, weights


def test_replicas_that_share_an_optimizer_and_a_device_count_apart() -> None:
    optimizer = create("adam")
    first, second = Updater(optimizer), Updater(optimizer)
    for updater in (first, second):
        updater(0, torch.ones(2), torch.ones(2))
    assert first.counts == second.counts == {0: 1}
    assert optimizer.num_update == 1


class Recorder(Optimizer):
    """Notes what it is called with."""

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self.calls: list[Any] = []

    def update(self, indices: Any, *rest: Any, **more: Any) -> None:
        self.calls.append(list(indices))


@pytest.mark.parametrize(
    ("aggregate_num", "calls"),
    [
        (None, [[0, 1, 2, 3, 4]]),
        (float("inf"), [[0, 1, 2, 3, 4]]),
        (1, [[0], [2], [4], [1], [3]]),
        (2, [[0, 2], [4], [1, 3]]),
    ],
)
def test_weights_are_grouped_by_dtype_and_cut_in_runs(aggregate_num: Any, calls: Any) -> None:
    updater = Updater(Recorder(aggregate_num=aggregate_num))
    dtypes = [torch.float32, torch.float64] * 2 + [torch.float32]
    weights = [torch.ones(2, dtype=dtype) for dtype in dtypes]
    updater(list(range(5)), weights, weights)
    assert updater.optimizer.calls == calls  # type: ignore[attr-defined]


def test_an_update_of_nothing_does_nothing() -> None:
    updater = Updater(create("sgd"))
    updater([], [], [])
    assert updater.counts == {}


def test_keys_may_be_text() -> None:
    updater = Updater(create("sgd", learning_rate=1.0))
    weight = torch.ones(2)
    updater("weight", torch.ones(2), weight)
    assert torch.equal(weight, torch.zeros(2))
    assert updater.counts == {"weight": 1}


def test_sparse_coo_gradients_are_taken() -> None:
    weight, updater = torch.ones(3, 2), Updater(create("sgd", learning_rate=1.0))
    gradient = torch.sparse_coo_tensor([[2, 0, 2]], torch.ones(3, 2), (3, 2), check_invariants=True)
    updater(0, gradient, weight)
    assert weight.tolist() == [[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]]


@pytest.mark.parametrize("name", registered_names())
def test_a_saved_updater_goes_on_bit_for_bit(name: str) -> None:
    first, weights = trained(name)
    others = [weight.clone() for weight in weights]
    second = Updater(create(name))
    second.load_state_dict(first.state_dict())
    for number in range(2):
        gradients = [torch.full_like(w, 0.3 - 0.1 * number) for w in weights]
        first([0, 1], gradients, weights)
        second([0, 1], gradients, others)
    assert all(torch.equal(mine, other) for mine, other in zip(weights, others, strict=True))
    assert first.counts == second.counts == {0: 5, 1: 5}


def test_loading_copies() -> None:
    first, weights = trained("adam")
    second = Updater(create("adam"))
    second.load_state_dict(first.state_dict())
    before = first.states[0]["mean"].clone()
    second([0, 1], [torch.ones_like(w) for w in weights], [w.clone() for w in weights])
    assert torch.equal(first.states[0]["mean"], before)


def test_a_loaded_state_takes_dtype_and_layout_of_its_weight() -> None:
    weight = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    first = Updater(create("sgd", momentum=0.9))
    first.load_state_dict(
        {"format": 1, "optimizer": "sgd", "counts": {0: 1}, "states": {0: {"momentum": torch.ones(2, 3, 4, 5).half()}}}
    )
    first(0, torch.zeros_like(weight), weight)
    momentum = first.states[0]["momentum"]
    assert momentum.dtype == torch.float32
    assert momentum.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(weight, torch.full_like(weight, 1.9))


def test_a_master_copy_that_was_not_saved_is_taken_from_the_weight_and_one_too_many_is_dropped() -> None:
    first, _ = trained("sgd", momentum=0.9)
    widened = Updater(create("sgd", momentum=0.9, multi_precision=True))
    widened.load_state_dict(first.state_dict())
    halves = [torch.full((2, 3), 0.5).half(), torch.full((4, 1), 0.5).half()]
    widened([0, 1], [torch.zeros_like(w) for w in halves], halves)
    assert widened.states[0]["master_weight"].dtype == torch.float32
    narrowed = Updater(create("sgd", momentum=0.9))
    narrowed.load_state_dict(widened.state_dict())
    narrowed([0], [torch.zeros(2, 3)], [torch.zeros(2, 3)])
    assert set(narrowed.states[0]) == {"momentum"}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "needs the state 'momentum' of shape .2, 3. for weight 0, and there is none"),
        ({"momentum": torch.ones(3, 2)}, "there is one of shape .3, 2."),
    ],
)
def test_a_loaded_state_that_does_not_fit_its_weight_is_refused_at_its_first_use(state: Any, message: str) -> None:
    updater = Updater(create("sgd", momentum=0.9))
    updater.load_state_dict({"format": 1, "optimizer": "sgd", "counts": {0: 4}, "states": {0: state}})
    weight = torch.ones(2, 3)
    for _ in range(2):
        with pytest.raises(ArgumentValueError, match=message):
            updater(0, torch.ones(2, 3), weight)
    assert torch.equal(weight, torch.ones(2, 3))
    assert updater.counts == {0: 4}


def test_a_state_of_another_optimizer_or_format_is_refused_and_changes_nothing() -> None:
    updater, _ = trained("sgd", momentum=0.9)
    before = updater.state_dict()
    with pytest.raises(ArgumentValueError, match="saved by adam, and this optimizer is sgd"):
        updater.load_state_dict(trained("adam")[0].state_dict())
    with pytest.raises(ArgumentValueError, match="format 2"):
        updater.load_state_dict({**before, "format": 2})
    assert updater.state_dict()["counts"] == before["counts"]
    assert updater.states.keys() == before["states"].keys()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("sgd", {"update": "dense_lazy", "momentum": 0.9}), ("nadam", {}), ("torch.adamw", {}), ("adam", {})],
)
def test_states_travel_as_json_and_tensors(name: str, arguments: dict[str, Any]) -> None:
    updater, weight = Updater(create(name, aggregate_num=float("inf"), **arguments)), torch.ones(5, 2)
    rows = RowSparse(torch.tensor([1]), torch.ones(1, 2), (5, 2))
    updater([0, "key"], [rows, torch.ones(3)], [weight, torch.ones(3)])
    travelled = []
    for state in (updater.optimizer.state_dict(), updater.state_dict()):
        packed, tensors = pack_tree(state)
        travelled.append(unpack_tree(json.loads(json.dumps(packed, allow_nan=False)), tensors))
    again, other = Updater(create(name)), weight.clone()
    again.optimizer.load_state_dict(travelled[0])
    again.load_state_dict(travelled[1])
    for one, target in ((updater, weight), (again, other)):
        one(0, RowSparse(torch.tensor([2]), torch.ones(1, 2), (5, 2)), target)
        one.catch_up(0, target)
    assert torch.equal(weight, other)
    assert again.optimizer.state_dict() == updater.optimizer.state_dict()
