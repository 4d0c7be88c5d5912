"""The asynchronous store with servers in this process: what workers see, however keys are cut."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.kvstore.registry import create as create_store
from ostinato.kvstore.server_core import ServerCore
from ostinato.kvstore.server_desk import ServerDesk
from ostinato.kvstore.transport_in_process import InProcessTransport
from ostinato.kvstore.worker_store import AsyncStore
from ostinato.optim.rate_schedules import FactorSchedule
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Updater, create

SHAPES = {"matrix": (7, 3), "vector": (11,), "flat": (1, 40), "number": (), "small": (2,)}


def store_on(servers: int, workers: int = 1) -> AsyncStore:
    desks = [ServerDesk(ServerCore(workers)) for _ in range(servers)]
    return AsyncStore(transport=InProcessTransport(desks))


def weight(key: str) -> torch.Tensor:
    return torch.randn(SHAPES[key], generator=torch.Generator().manual_seed(len(key)))


def gradient(key: str, turn: int) -> torch.Tensor:
    return torch.randn(SHAPES[key], generator=torch.Generator().manual_seed(100 * turn + len(key)))


@pytest.fixture(params=[1, 3], ids=["one server", "three servers"])
def servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("MXNET_KVSTORE_BIGARRAY_BOUND", "10")
    return request.param


@pytest.mark.parametrize("name", ["adam", "lars", "groupadagrad", "torch.Adam"])
def test_servers_update_like_one_process(servers: int, name: str) -> None:
    keys = ["matrix", "flat"] if name == "groupadagrad" else list(SHAPES)
    store = store_on(servers)
    store.set_optimizer(create(name, learning_rate=0.1))
    weights = {key: weight(key) for key in keys}
    store.broadcast(keys, list(weights.values()), list(weights.values()))
    expected, updater = {key: weight(key) for key in keys}, Updater(create(name, learning_rate=0.1))
    for turn in range(3):
        store.pushpull(keys, [gradient(key, turn) for key in keys], [weights[key] for key in keys])
        updater(keys, [gradient(key, turn) for key in keys], [expected[key] for key in keys])
    for key in keys:
        torch.testing.assert_close(weights[key], expected[key])
        assert store.versions[key] == 3


@pytest.mark.parametrize("other", [1, 2, 3])
def test_states_continue_on_another_number_of_servers(servers: int, other: int) -> None:
    results = []
    first = store_on(servers)
    rule = create("adam", learning_rate=0.1)
    first.set_optimizer(rule)
    keys = list(SHAPES)
    weights = {key: weight(key) for key in keys}
    first.broadcast(keys, list(weights.values()), list(weights.values()))
    for turn in range(2):
        first.pushpull(keys, [gradient(key, turn) for key in keys], [weights[key] for key in keys])
    states, settings = first.save_optimizer_states(), rule.state_dict()
    assert states["counts"] == dict.fromkeys(keys, 2)
    for key in keys:
        assert all(tuple(value.shape) == SHAPES[key] for value in states["states"][key].values())
    second = store_on(other)
    again = create("adam", learning_rate=0.1)
    again.load_state_dict(settings)
    second.set_optimizer(again)
    copies = {key: weights[key].clone() for key in keys}
    second.broadcast(keys, list(copies.values()), list(copies.values()))
    second.load_optimizer_states(states)
    for store, held in ((first, weights), (second, copies)):
        store.pushpull(keys, [gradient(key, 2) for key in keys], [held[key] for key in keys])
        results.append(held)
    for key in keys:
        torch.testing.assert_close(results[0][key], results[1][key])
    assert again.num_update == rule.num_update == 3


def test_rows_of_a_table_and_of_a_dense_weight(servers: int) -> None:
    store = store_on(servers)
    store.set_optimizer(create("sgd", learning_rate=1.0, lazy_update=True))
    initial = weight("matrix")
    store.init(["table", "dense"], [RowSparse(torch.arange(7), initial, (7, 3)), initial])
    pushed = RowSparse(torch.tensor([0, 4, 6]), torch.ones(3, 3), (7, 3))
    coo = torch.sparse_coo_tensor(torch.tensor([[6, 0, 4]]), torch.ones(3, 3), (7, 3), check_invariants=True)
    out = torch.empty(7, 3)
    store.pushpull(["table", "dense"], [pushed, coo], [[], out])
    store.push("table", RowSparse.empty((7, 3)))
    expected = initial.clone()
    expected[[0, 4, 6]] -= 1
    torch.testing.assert_close(out, expected)
    rows = store.row_sparse_pull("table", torch.tensor([[6, 1], [1, 0]]))
    assert rows.indices.tolist() == [0, 1, 6]
    torch.testing.assert_close(rows.values, expected[[0, 1, 6]])
    assert store.row_sparse_pull("table", torch.empty(0, dtype=torch.int64)).values.shape == (0, 3)
    torch.testing.assert_close(store.row_sparse_pull("dense", torch.tensor([6])).values, expected[[6]])
    whole = torch.zeros(7, 3)
    store.pull("table", whole)
    assert whole.abs().sum() == 0  # passed over
    store.pull("table", whole, ignore_sparse=False)
    torch.testing.assert_close(whole, expected)
    with pytest.raises(ArgumentValueError, match="Row 7"):
        store.row_sparse_pull("table", torch.tensor([7]))


def test_compressed_pushes_do_not_depend_on_how_keys_are_cut(servers: int) -> None:
    results = []
    for number in (1, servers):
        store = store_on(number)
        store.set_gradient_compression({"type": "2bit", "threshold": 0.3})
        store.set_optimizer(create("sgd", learning_rate=1.0))
        out = torch.zeros(1003)
        store.broadcast("w", torch.zeros(1003), out)
        before = store.bytes_sent
        for turn in range(3):
            value = torch.randn(1003, generator=torch.Generator().manual_seed(turn))
            store.pushpull("w", value, out)
        results.append((out, store.residuals()[0]["residuals"]["w"], store.bytes_sent - before))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert results[0][2] < 3 * (1003 * 4 / 16 + 1000)


def test_rates_multipliers_and_schedules_are_live(servers: int) -> None:
    store = store_on(servers)
    rule = create("sgd", lr_scheduler=FactorSchedule(step=1, factor=0.5, base_lr=1.0))
    handle = SimpleNamespace(lr_mult=1.0, wd_mult=1.0)
    rule.param_dict = {"w": handle}
    store.set_optimizer(rule)
    out = torch.zeros(2)
    store.broadcast("w", torch.zeros(2), out)
    used = []
    for _ in range(2):
        before = out.clone()
        store.pushpull("w", torch.ones(2), out)
        used.append(float((before - out)[0]))
        assert rule.learning_rate == used[-1]  # the reported rate is the one that was used
    handle.lr_mult = 0.0
    kept = out.clone()
    store.pushpull("w", torch.ones(2), out)
    assert torch.equal(out, kept)
    handle.lr_mult = 2.0
    rule.rescale_grad = 0.5
    store.pushpull("w", torch.ones(2), out)
    assert used == [1.0, 0.5]
    assert float((kept - out)[0]) == pytest.approx(0.125)


def test_what_is_not_finite_is_not_pushed() -> None:
    store = store_on(1)
    store.set_optimizer(create("sgd", learning_rate=1.0))
    out = torch.zeros(2)
    store.broadcast("w", torch.ones(2), out)
    assert not store.pushpull("w", torch.tensor([1.0, torch.inf]), out, only_if_finite=True)
    assert store.pushpull("w", torch.ones(2), out, only_if_finite=True)
    assert out.tolist() == [0, 0]
    assert store.agree([True, False]) == [True, False]


def test_replicas_are_summed_and_a_worker_may_have_nothing_to_push() -> None:
    store = store_on(1)
    store.set_optimizer(create("sgd", learning_rate=1.0))
    outs = [torch.zeros(2), torch.zeros(2)]
    store.broadcast("w", torch.ones(2), outs)
    store.pushpull(["w"], [[torch.ones(2), torch.ones(2)]], [outs])
    assert [out.tolist() for out in outs] == [[-1, -1]] * 2
    store.pushpull(["w"], [[]], [outs])
    assert store.versions["w"] == 1
    store.set_value("w", torch.full((2,), 9.0))
    store.pull("w", outs)
    assert outs[1].tolist() == [9, 9]


def test_the_registry_knows_it_and_a_single_worker_needs_no_servers() -> None:
    store = create_store("dist_async")
    assert (store.type, store.rank, store.num_workers, store.is_asynchronous) == ("dist_async", 0, 1, True)
    store.set_optimizer(create("sgd", learning_rate=1.0))
    store.init("w", torch.zeros(2))
    store.barrier()
    store.close()
    store.close()
    with pytest.raises(StateError, match="closed"):
        store.barrier()


MISTAKES: list[tuple[Callable[[AsyncStore], Any], type[Exception], str]] = [
    (lambda s: s.push("w", torch.zeros(2)), StateError, "no optimizer"),
    (lambda s: s.push("v", torch.zeros(2)), ArgumentValueError, "never initialised"),
    (lambda s: s.init("w", torch.zeros(2)), ArgumentValueError, "initialised before"),
    (lambda s: s.set_optimizer(create("sgd")), StateError, "after its first key"),
    (lambda s: s.set_gradient_compression({"type": "2bit"}), StateError, "after its first key"),
    (lambda s: s.save_optimizer_states(), StateError, "no optimizer"),
    (lambda s: s.load_residuals([{}]), StateError, "compresses nothing"),
    (lambda s: s.init(3, torch.zeros(2)), ArgumentValueError, "keys"),
]


@pytest.mark.parametrize(("call", "kind", "text"), MISTAKES, ids=[text for _, _, text in MISTAKES])
def test_mistakes_are_named(call: Callable[[AsyncStore], Any], kind: type[Exception], text: str) -> None:
    store = store_on(1)
    store.init("w", torch.zeros(2))
    with pytest.raises(kind, match=text):
        call(store)


def test_a_schedule_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="function"):
        store_on(1).set_optimizer(create("sgd", lr_scheduler=lambda n: 0.1))


def test_several_workers_need_servers() -> None:
    with pytest.raises(StateError, match="--servers"):
        AsyncStore(group=SimpleNamespace(rank=1, size=2)).init("w", torch.zeros(2))
