"""The store of one process, call by call."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.kvstore import Store, create
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import SGD

NAMES = ["local", "device"]


def tensor(*values: float) -> Tensor:
    return torch.tensor([float(value) for value in values])


@pytest.fixture(params=NAMES)
def store(request: pytest.FixtureRequest) -> Store:
    return create(request.param)


def pulled(store: Store, key: Any, like: Tensor) -> list[float]:
    out = torch.empty_like(like)
    store.pull(key, out)
    return out.flatten().tolist()


def test_init_copies_and_happens_once(store: Store) -> None:
    value = tensor(1, 2)
    store.init("w", value)
    value.zero_()
    assert pulled(store, "w", value) == [1, 2]
    with pytest.raises(ArgumentValueError, match="initialised before"):
        store.init("w", value)


def test_broadcast_is_init_and_pull(store: Store) -> None:
    outs = [tensor(0, 0), tensor(0, 0)]
    store.broadcast(0, tensor(1, 2), outs)
    assert [out.tolist() for out in outs] == [[1, 2], [1, 2]]
    with pytest.raises(ArgumentValueError, match="initialised before"):
        store.broadcast(0, tensor(1, 2), outs)


def test_a_push_without_updater_replaces_by_the_sum(store: Store) -> None:
    store.init(3, tensor(9, 9))
    store.push(3, [tensor(1, 2), tensor(3, 4), tensor(5, 6)])
    assert pulled(store, 3, tensor(0, 0)) == [9, 12]
    store.push([3, 3], [tensor(1, 1), [tensor(1, 1), tensor(1, 1)]])
    assert pulled(store, 3, tensor(0, 0)) == [3, 3]


def test_a_push_does_not_alias_what_was_pushed(store: Store) -> None:
    store.init(0, tensor(0, 0))
    mine = tensor(1, 2)
    store.push(0, mine)
    mine.fill_(7)
    assert pulled(store, 0, mine) == [1, 2]
    out = tensor(0, 0)
    store.pull(0, out)
    out.fill_(8)
    assert pulled(store, 0, out) == [1, 2]


def test_an_updater_changes_what_is_stored(store: Store) -> None:
    def updater(key: Any, total: Tensor, stored: Tensor) -> None:
        assert key == "w"
        stored += 10 * total

    store.set_updater(updater)
    store.init("w", tensor(1, 1))
    store.push("w", [tensor(1, 0), tensor(1, 2)])
    assert pulled(store, "w", tensor(0, 0)) == [21, 21]
    with pytest.raises(ArgumentTypeError, match="cannot be called"):
        store.set_updater(3)  # type: ignore[arg-type]


def test_an_optimizer_is_shared_and_not_copied(store: Store) -> None:
    optimizer = SGD(learning_rate=0.5)
    store.set_optimizer(optimizer)
    store.init([0, 1], [tensor(1), tensor(2)])
    store.push([0, 1], [[tensor(1), tensor(1)], tensor(1)])
    assert (pulled(store, 0, tensor(0)), pulled(store, 1, tensor(0))) == ([0], [1.5])
    optimizer.set_learning_rate(1.0)
    store.push(0, tensor(1))
    assert pulled(store, 0, tensor(0)) == [-1]
    assert optimizer.num_update == 2


def test_pushpull_without_outputs_overwrites_the_values(store: Store) -> None:
    store.init([0, 1], [tensor(0, 0), tensor(0)])
    values = [[tensor(1, 2), tensor(3, 4)], [tensor(5), tensor(6)]]
    assert store.pushpull([0, 1], values, priority=[0, -1])
    assert [[v.tolist() for v in pair] for pair in values] == [[[4, 6], [4, 6]], [[11], [11]]]


def test_pushpull_with_outputs_leaves_the_values(store: Store) -> None:
    store.set_optimizer(SGD(learning_rate=1.0))
    store.init(0, tensor(1, 1))
    gradients, weights = [tensor(1, 0), tensor(0, 1)], [tensor(0, 0), tensor(0, 0)]
    store.pushpull(0, gradients, weights)
    assert [g.tolist() for g in gradients] == [[1, 0], [0, 1]]
    assert [w.tolist() for w in weights] == [[0, 0], [0, 0]]


def test_pushpull_of_sums_that_are_not_finite_changes_nothing_if_asked(store: Store) -> None:
    store.set_optimizer(SGD(learning_rate=1.0))
    store.init([0, 1], [tensor(1), tensor(1)])
    out = [tensor(5), tensor(5)]
    assert not store.pushpull([0, 1], [tensor(1), tensor(float("inf"))], out, only_if_finite=True)
    assert [o.item() for o in out] == [5, 5]
    assert (pulled(store, 0, out[0]), pulled(store, 1, out[0])) == ([1], [1])
    assert store.save_optimizer_states()["counts"] == {}
    assert store.pushpull([0, 1], [tensor(1), tensor(2)], out, only_if_finite=True)
    assert [o.item() for o in out] == [0, -1]


def test_unknown_keys_mixed_kinds_and_wrong_shapes_are_errors(store: Store) -> None:
    store.init(0, tensor(1, 2))
    with pytest.raises(ArgumentValueError, match="never initialised"):
        store.push(1, tensor(1, 2))
    with pytest.raises(ArgumentValueError, match="never initialised"):
        store.pull(1, tensor(1, 2))
    with pytest.raises(ArgumentValueError, match="numbers"):
        store.init("w", tensor(1))
    for call in (store.push, store.pull, store.set_value):
        with pytest.raises(ArgumentValueError, match=r"holds \(2,\)"):
            call(0, tensor(1, 2, 3))


def test_calls_for_states_need_an_optimizer(store: Store) -> None:
    with pytest.raises(StateError, match="no optimizer"):
        store.save_optimizer_states()
    with pytest.raises(StateError, match="no optimizer"):
        store.load_optimizer_states({})


def test_states_go_on_in_another_store(store: Store) -> None:
    store.set_optimizer(SGD(learning_rate=0.1, momentum=0.9))
    store.init(0, tensor(1.0))
    store.push(0, tensor(1.0))
    states = store.save_optimizer_states()
    other = create("local")
    other.set_optimizer(SGD(learning_rate=0.1, momentum=0.9))
    other.load_optimizer_states(states)  # before its keys are there
    other.init(0, tensor(0.9))
    for one in (store, other):
        one.push(0, tensor(1.0))
    assert pulled(other, 0, tensor(0)) == pulled(store, 0, tensor(0)) == pytest.approx([0.9 - 0.19])


def test_a_replaced_value_keeps_its_state_and_moves_its_master_copy(store: Store) -> None:
    store.set_optimizer(SGD(learning_rate=0.1, momentum=0.9, multi_precision=True))
    store.init(0, tensor(1.0).half())
    store.push(0, tensor(1.0).half())
    store.set_value(0, tensor(5.0).half())
    store.push(0, tensor(1.0).half())
    assert pulled(store, 0, tensor(0).half()) == pytest.approx([5 - 0.19], abs=5e-3)


# --- rows ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(store: Store) -> Store:
    whole = torch.arange(8.0).reshape(4, 2)
    store.init("t", RowSparse(torch.arange(4), whole, (4, 2)))
    return store


def test_rows_come_unique_and_in_order(table: Store) -> None:
    rows = table.row_sparse_pull("t", torch.tensor([[3, 1], [1, 3]], dtype=torch.int32))
    assert isinstance(rows, RowSparse)
    assert rows.indices.tolist() == [1, 3]
    assert rows.values.tolist() == [[2, 3], [6, 7]]
    several = table.row_sparse_pull("t", [torch.tensor([0]), torch.tensor([], dtype=torch.int64)])
    assert [len(each.indices) for each in several] == [1, 0]  # type: ignore[union-attr]
    listed = table.row_sparse_pull(["t"], [torch.tensor([2])])
    assert listed[0].values.tolist() == [[4, 5]]  # type: ignore[index]


@pytest.mark.parametrize("row", [-1, 4])
def test_a_row_outside_of_the_table_is_an_error(table: Store, row: int) -> None:
    with pytest.raises(ArgumentValueError, match=f"Row {row} "):
        table.row_sparse_pull("t", torch.tensor([0, row]))
    values = RowSparse(torch.tensor([row]), torch.zeros(1, 2), (4, 2))
    with pytest.raises(ArgumentValueError, match=f"Row {row} "):
        table.push("t", values)


def test_row_numbers_are_integers(table: Store) -> None:
    for wrong in (torch.tensor([1.0]), torch.tensor([True])):
        with pytest.raises(ArgumentTypeError, match="integers"):
            table.row_sparse_pull("t", wrong)


def test_a_table_is_passed_over_by_pull_unless_asked(table: Store, caplog: pytest.LogCaptureFixture) -> None:
    out = torch.full((4, 2), -1.0)
    with caplog.at_level(logging.INFO):
        table.pull("t", out)
        table.pull("t", out)
    assert (out == -1).all()
    assert caplog.text.count("passes over the table") == 1
    table.pull("t", out, ignore_sparse=False)
    assert out.tolist() == torch.arange(8.0).reshape(4, 2).tolist()


def test_pushed_rows_replace_only_themselves_where_nothing_updates(table: Store) -> None:
    rows = [RowSparse(torch.tensor([0, 2]), torch.ones(2, 2), (4, 2)), RowSparse.empty((4, 2))]
    table.push("t", rows)
    out = torch.empty(4, 2)
    table.pull("t", out, ignore_sparse=False)
    assert out.tolist() == [[1, 1], [2, 3], [1, 1], [6, 7]]


def test_pushed_rows_are_added_up_over_replicas_and_update_their_rows(table: Store) -> None:
    table.set_optimizer(SGD(learning_rate=1.0, lazy_update=True))
    first = RowSparse(torch.tensor([0, 2]), torch.ones(2, 2), (4, 2))
    coo = torch.sparse_coo_tensor(torch.tensor([[2, 2, 3]]), torch.ones(3, 2), (4, 2), check_invariants=True)
    assert table.pushpull("t", [first, coo], [])
    out = torch.empty(4, 2)
    table.pull("t", out, ignore_sparse=False)
    assert out.tolist() == [[-1, 0], [2, 3], [1, 2], [5, 6]]


def test_rows_of_a_gradient_come_back_as_the_rows_of_the_sum(store: Store) -> None:
    store.init(0, torch.zeros(4, 2))
    gradients = [
        torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1, 2), (4, 2), check_invariants=True),
        torch.sparse_coo_tensor(torch.tensor([[0, 3]]), torch.ones(2, 2), (4, 2), check_invariants=True),
    ]
    store.pushpull(0, gradients)
    for gradient in gradients:
        assert gradient.coalesce().indices().tolist() == [[0, 3]]
        assert gradient.coalesce().values().tolist() == [[2, 2], [1, 1]]


def test_rows_that_were_put_off_are_caught_up_before_they_are_pulled(table: Store) -> None:
    dense = create("local")
    dense.init("t", torch.arange(8.0).reshape(4, 2))
    for one, update in ((table, "dense_lazy"), (dense, "dense")):
        one.set_optimizer(SGD(learning_rate=0.1, momentum=0.9, wd=0.01, update=update))
        for rows in ([0, 2], [0], [3], []):
            one.push("t", RowSparse(torch.tensor(rows, dtype=torch.int64), torch.ones(len(rows), 2), (4, 2)))
    expected = torch.empty(4, 2)
    dense.pull("t", expected)
    found = table.row_sparse_pull("t", torch.tensor([2]))
    torch.testing.assert_close(found.values, expected[2:3])  # type: ignore[union-attr]
    whole = torch.empty(4, 2)
    table.pull("t", whole, ignore_sparse=False)
    torch.testing.assert_close(whole, expected)


# --- compression --------------------------------------------------------------------------------------------------


def compressing() -> Store:
    store = create("device")
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    store.init(0, tensor(0, 0, 0))
    return store


def test_every_replica_is_compressed_with_a_residual_of_its_own() -> None:
    store = compressing()
    values = [tensor(0.3, 0.7, -0.2), tensor(0.6, 0.7, 0.0)]
    store.pushpull(0, [value.clone() for value in values], out := [tensor(0, 0, 0), tensor(0, 0, 0)])
    assert out[0].tolist() == out[1].tolist() == [0.5, 1.0, 0.0]
    store.pushpull(0, [value.clone() for value in values], out)
    assert out[0].tolist() == pytest.approx([1.0, 1.0, 0.0])  # 0.6, and 0.1 + 0.6: both reach the threshold
    assert [state["residuals"][0].tolist() for state in store.residuals()] == [
        pytest.approx([0.1, 0.4, -0.4]),
        pytest.approx([0.2, 0.4, 0.0]),
    ]


def test_residuals_go_on_in_another_store_and_with_fewer_replicas() -> None:
    store = compressing()
    store.push(0, [tensor(0.3, 0.0, 0.0), tensor(0.3, 0.0, 0.0)])
    same, fewer = compressing(), compressing()
    for other in (same, fewer):
        other.load_residuals(store.residuals())
    same.push(0, [tensor(0.1, 0, 0), tensor(0.2, 0, 0)])
    assert pulled(same, 0, tensor(0, 0, 0)) == [0.5, 0, 0]
    fewer.push(0, [tensor(0.0, 0, 0)])
    assert pulled(fewer, 0, tensor(0, 0, 0)) == [0.5, 0, 0], "what both replicas owed is owed by the one that is left"


def test_a_gradient_that_is_not_finite_leaves_residuals_alone_if_asked() -> None:
    store = compressing()
    store.push(0, tensor(0.3, 0, 0))
    before = store.residuals()[0]["residuals"][0].clone()
    assert not store.pushpull(0, tensor(float("nan"), 1, 1), only_if_finite=True)
    assert torch.equal(store.residuals()[0]["residuals"][0], before)


def test_compression_is_refused_where_it_is_not_defined() -> None:
    store = compressing()
    with pytest.raises(ArgumentTypeError, match="float32"):
        store.push(0, tensor(1, 1, 1).half())
    with pytest.raises(ArgumentValueError, match="'local'"):
        create("local").set_gradient_compression({"type": "2bit"})
    with pytest.raises(StateError, match="compresses nothing"):
        create("device").load_residuals(store.residuals() or [{"format": 1}])


def test_capabilities() -> None:
    assert [create("local").is_capable(c) for c in ("optimizer", "row_sparse", "compression")] == [True, True, False]
    assert create("device").is_capable("compression")
    with pytest.raises(ArgumentValueError, match="no capability"):
        create("local").is_capable("teleport")  # type: ignore[arg-type]


def test_a_closed_store_begins_anew(store: Store) -> None:
    store.init(0, tensor(1))
    store.close()
    store.close()
    store.init(0, tensor(2))
    assert pulled(store, 0, tensor(0)) == [2]


def test_workers_of_one_process_agree_with_themselves(store: Store) -> None:
    assert store.agree([True, False]) == [True, False]
    store.barrier()
    with store.holding():
        pass
