"""What all stores of this package do alike."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.kvstore import AsyncStore, CollectiveStore, LocalStore, Store
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import create

ROWS = torch.arange(8.0).view(4, 2)

MAKERS: dict[str, Callable[[], Store]] = {
    "local": LocalStore,
    "device": lambda: LocalStore("device"),
    "dist_sync": CollectiveStore,
    "dist_async": AsyncStore,
}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest) -> Store:
    made = MAKERS[request.param]()
    made.set_optimizer(create("sgd", learning_rate=1.0))
    made.name_keys({0: "weight", 1: "table"})
    made.init([0, 1], [torch.zeros(2, 2), RowSparse(torch.arange(4), ROWS, (4, 2))])
    return made


def pulled(store: Store, key: int, shape: tuple[int, ...]) -> Tensor:
    out = torch.empty(shape)
    store.pull(key, out, ignore_sparse=False)
    return out


def test_a_table_is_passed_over_by_pull_and_that_is_said_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    weight, table = torch.ones(2, 2), torch.full((4, 2), -1.0)
    with caplog.at_level(logging.INFO, logger="ostinato.kvstore"):
        store.pull([0, 1], [weight, table])
        store.pull(1, table)
    assert torch.equal(weight, torch.zeros(2, 2))
    assert (table == -1).all()
    assert caplog.text.count("pull passes over the table 1") == 1
    assert torch.equal(pulled(store, 1, (4, 2)), ROWS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda store: store.push([0, 1], [torch.ones(2, 2), torch.ones(3, 2)]), "'table' holds"),
        (lambda store: store.pushpull(0, torch.ones(3), torch.ones(2, 2)), "'weight' holds"),
        (lambda store: store.set_value(0, torch.ones(3)), "'weight' holds"),
        (lambda store: store.load_rows(1, torch.ones(3, 2)), "'table' holds"),
        (lambda store: store.pull(0, torch.ones(3)), "'weight' holds"),
    ],
)
def test_another_shape_is_refused_by_name_and_changes_nothing(
    store: Store, call: Callable[[Store], object], message: str
) -> None:
    with pytest.raises(ArgumentValueError, match=message):
        call(store)
    assert torch.equal(pulled(store, 0, (2, 2)), torch.zeros(2, 2))
    assert torch.equal(pulled(store, 1, (4, 2)), ROWS)


def test_rows_that_are_no_rows_are_refused(store: Store) -> None:
    with pytest.raises(ArgumentTypeError, match="Rows of 'table' are loaded from a tensor or a saved table, not list"):
        store.load_rows(1, [1.0])  # type: ignore[arg-type]


def test_rows_that_are_handed_over_can_be_loaded_again(store: Store) -> None:
    kept = store.rows_in_parts(1)
    assert isinstance(kept, Tensor)
    kept = kept.clone()
    store.push(1, RowSparse(torch.tensor([2]), torch.ones(1, 2), (4, 2)))
    assert not torch.equal(pulled(store, 1, (4, 2)), ROWS)
    store.load_rows(1, kept)
    assert torch.equal(pulled(store, 1, (4, 2)), ROWS)


def test_residuals_are_refused_by_a_store_that_does_not_compress(store: Store) -> None:
    store.load_residuals([])
    with pytest.raises(StateError, match="compresses nothing"):
        store.load_residuals([{"format": 1, "type": "2bit", "threshold": 0.5, "residuals": {}}])


def test_a_sum_that_is_not_finite_changes_nothing(store: Store) -> None:
    out = torch.full((2, 2), -1.0)
    assert not store.pushpull(0, torch.full((2, 2), float("nan")), out, only_if_finite=True)
    assert (out == -1).all()
    assert store.pushpull(0, torch.ones(2, 2), out, only_if_finite=True)
    assert torch.equal(out, torch.full((2, 2), -1.0))
