"""The update on the store in synchronous training: every rank updates its own part of the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import run_on_ranks
from torch import Tensor

from ostinato.dist import Alone
from ostinato.errors import StateError
from ostinato.kvstore.collective import CollectiveStore
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Updater, create

SHAPES: dict[str, tuple[int, ...]] = {"a": (7, 5), "b": (11,), "c": (3, 4, 2), "d": (1,), "e": (40, 3)}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01},
    "adam": {"learning_rate": 0.01},
    "nadam": {"learning_rate": 0.01},
    "lamb": {"learning_rate": 0.01, "wd": 0.1},
    "lars": {"learning_rate": 0.1, "momentum": 0.9},
}
CASES = [
    (name, dtype)
    for name in OPTIMIZERS
    for dtype in (torch.float32, torch.float16)
    if name != "lars" or dtype == torch.float32
]
STEPS = 3


def optimizer(name: str) -> Any:
    options = dict(OPTIMIZERS[name])
    return create(name, multi_precision=True, rescale_grad=0.5, **options)


def weight(key: str, dtype: torch.dtype) -> Tensor:
    return torch.randn(SHAPES[key], generator=torch.Generator().manual_seed(len(key) + ord(key[0]))).to(dtype)


def gradient(key: str, rank: int, turn: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * turn + 10 * rank + ord(key[0]))
    # Halves of small whole numbers: their sums are exact in float16, in whatever order ranks are added.
    return torch.randint(-8, 9, SHAPES[key], generator=generator).to(dtype) / 2


def keys_of(turn: int) -> list[str]:
    """One key is stale in the second step."""
    return [key for key in SHAPES if turn != 1 or key != "c"]


def train(
    group: Any, name: str, dtype: torch.dtype, steps: range, contributors: int, start: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Some steps; the gradients of the contributors are shared out over the ranks."""
    store = CollectiveStore("dist_sync", group, bucket_bytes=100)
    rule = optimizer(name)
    store.set_optimizer(rule)
    weights = {key: weight(key, dtype) if start is None else start["weights"][key].clone() for key in SHAPES}
    if start is not None:
        rule.load_state_dict(start["optimizer"])
        store.load_optimizer_states(start["states"])
    store.broadcast(list(weights), list(weights.values()), list(weights.values()))
    for turn in steps:
        keys = keys_of(turn)
        pushed = [
            [gradient(key, number, turn, dtype) for number in range(group.rank, contributors, group.size)]
            for key in keys
        ]
        store.pushpull(keys, pushed, [weights[key] for key in keys])
    own = sum(
        value.numel() * value.element_size()
        for state in store._keys.updater.states.values()
        for value in state.values()
        if isinstance(value, Tensor)
    )
    states = store.save_optimizer_states()
    return {
        "weights": weights,
        "states": states,
        "optimizer": rule.state_dict(),
        "own_bytes": own,
        "num_update": rule.num_update,
        "calls": set(store.handed_over),
    }


def train_all(group: Any, contributors: int) -> dict[str, Any]:
    return {f"{name} {dtype}": train(group, name, dtype, range(STEPS), contributors) for name, dtype in CASES}


def go_on_all(group: Any, contributors: int, starts: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{name} {dtype}": train(group, name, dtype, range(STEPS, 2 * STEPS), contributors, starts[f"{name} {dtype}"])
        for name, dtype in CASES
    }


def plain(name: str, dtype: torch.dtype, steps: int, contributors: int) -> tuple[dict[str, Tensor], Updater]:
    """The same in one process, without a store."""
    updater = Updater(optimizer(name))
    weights = {key: weight(key, dtype) for key in SHAPES}
    for turn in range(steps):
        keys = keys_of(turn)
        sums = [sum(gradient(key, number, turn, dtype) for number in range(contributors)) for key in keys]
        updater(keys, sums, [weights[key] for key in keys])
    return weights, updater


def values_of(results: list[Any]) -> list[dict[str, Any]]:
    for result in results:
        if result.error is not None:
            raise AssertionError(result.output) from result.error
    return [result.value for result in results]


@pytest.fixture(scope="module")
def on_four(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return values_of(run_on_ranks(train_all, 4, folder=tmp_path_factory.mktemp("four"), ranks=4))


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return values_of(run_on_ranks(train_all, 4, folder=tmp_path_factory.mktemp("two"), ranks=2))


@pytest.fixture(scope="module")
def on_one() -> list[dict[str, Any]]:
    return [train_all(Alone(), 4)]


def compare(found: dict[str, Any], name: str, dtype: torch.dtype, steps: int) -> None:
    weights, updater = plain(name, dtype, steps, 4)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 2e-3, "atol": 2e-3}
    for key, expected in weights.items():
        torch.testing.assert_close(found["weights"][key], expected, **tolerance)
        for part, value in updater.states[key].items():
            if isinstance(value, Tensor):
                torch.testing.assert_close(found["states"]["states"][key][part], value, rtol=1e-4, atol=1e-5)
            else:
                assert found["states"]["states"][key][part] == value
    assert found["states"]["counts"] == updater.counts
    assert found["num_update"] == updater.optimizer.num_update


@pytest.mark.parametrize("ranks", ["on_one", "on_two", "on_four"])
@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_ranks_update_like_one_process_on_the_joined_batch(
    request: pytest.FixtureRequest, ranks: str, name: str, dtype: torch.dtype
) -> None:
    results = request.getfixturevalue(ranks)
    for values in results:
        found = values[f"{name} {dtype}"]
        compare(found, name, dtype, STEPS)
        for key, expected in results[0][f"{name} {dtype}"]["weights"].items():
            assert torch.equal(found["weights"][key], expected)


@pytest.mark.parametrize("ranks", ["on_two", "on_four"])
def test_a_rank_keeps_its_share_of_the_optimizer_state(request: pytest.FixtureRequest, ranks: str) -> None:
    results = request.getfixturevalue(ranks)
    total = 4 * sum(torch.Size(shape).numel() for shape in SHAPES.values())
    for name, tensors in (("sgd", 1), ("adam", 2)):
        own = [values[f"{name} torch.float32"]["own_bytes"] for values in results]
        assert sum(own) == tensors * total
        assert max(own) <= tensors * total / len(results) * 1.25
    assert sum(values["lamb torch.float32"]["own_bytes"] for values in results) == 2 * total


def test_elementwise_rules_are_cut_anywhere_and_others_at_weights(on_two: list[dict[str, Any]]) -> None:
    assert {"reduce_scatter", "all_gather"} <= on_two[0]["adam torch.float32"]["calls"]
    assert "reduce" not in on_two[0]["adam torch.float32"]["calls"]
    assert "reduce" in on_two[0]["lamb torch.float32"]["calls"]
    assert "reduce_scatter" not in on_two[0]["lamb torch.float32"]["calls"]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_run_saved_on_four_ranks_goes_on_with_fewer(
    tmp_path: Path, on_four: list[dict[str, Any]], ranks: int
) -> None:
    starts = {
        case: {part: found[part] for part in ("weights", "states", "optimizer")} for case, found in on_four[3].items()
    }
    if ranks == 1:
        results = [go_on_all(Alone(), 4, starts)]
    else:
        results = values_of(run_on_ranks(go_on_all, 4, starts, folder=tmp_path, ranks=ranks))
    for values in results:
        for name, dtype in CASES:
            compare(values[f"{name} {dtype}"], name, dtype, 2 * STEPS)


def sparse_and_dense(group: Any) -> dict[str, Any]:
    """Row-sparse gradients of a dense weight beside dense ones, with the update on the store; then more dense keys."""
    store = CollectiveStore("dist_sync", group, bucket_bytes=100)
    store.set_optimizer(create("sgd", learning_rate=0.1, momentum=0.9, lazy_update=True))
    weights = {key: weight(key, torch.float32) for key in SHAPES}
    store.broadcast(list(weights), list(weights.values()), list(weights.values()))
    done = []
    for turn in range(3):
        rows = torch.tensor([group.rank, 30])
        sparse: Any = RowSparse(rows, torch.ones(2, 3) * (turn + 1), (40, 3)) if turn != 1 or group.rank else []
        values: list[Any] = [gradient(key, group.rank, turn, torch.float32) for key in SHAPES if key != "e"]
        if turn == 2 and group.rank == 0:
            values[0][0, 0] = torch.inf
        done.append(store.pushpull(list(SHAPES), [*values, sparse], list(weights.values()), only_if_finite=True))
    store.set_value("a", torch.ones(7, 5) * (group.rank + 2))
    store.pull("a", weights["a"])
    return {"weights": weights, "done": done, "states": store.save_optimizer_states()}


def test_row_sparse_gradients_and_dense_ones_side_by_side(tmp_path: Path) -> None:
    results = values_of(run_on_ranks(sparse_and_dense, folder=tmp_path, ranks=2))
    updater = Updater(create("sgd", learning_rate=0.1, momentum=0.9, lazy_update=True))
    weights = {key: weight(key, torch.float32) for key in SHAPES}
    for turn in range(2):
        dense = [key for key in SHAPES if key != "e"]
        sums = [sum(gradient(key, rank, turn, torch.float32) for rank in range(2)) for key in dense]
        rows = [torch.tensor([rank, 30]) for rank in range(2) if turn != 1 or rank]
        values = torch.ones(2 * len(rows), 3) * (turn + 1)
        sparse = RowSparse.from_rows(torch.cat(rows), values, (40, 3))
        updater([*dense, "e"], [*sums, sparse], [weights[key] for key in SHAPES])
    for found in results:
        assert found["done"] == [True, True, False]  # the third, with an infinity, changes nothing
        assert found["weights"].pop("a").unique().tolist() == [2]
        for key, value in found["weights"].items():
            torch.testing.assert_close(value, weights[key])
        for key, state in updater.states.items():
            torch.testing.assert_close(found["states"]["states"][key]["momentum"], state["momentum"])


def test_an_optimizer_comes_before_the_first_exchange() -> None:
    store = CollectiveStore("dist_sync", Alone())
    store.init("w", torch.zeros(3))
    store.push("w", torch.zeros(3))
    with pytest.raises(StateError, match="before the first key"):
        store.set_optimizer(create("sgd"))
