"""States that are cut over servers: in the parts that workers save, and loaded by other numbers of both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.kvstore import AsyncStore
from ostinato.kvstore.row_sparse_tables import BOUND_VARIABLE
from ostinato.kvstore.saved_leaves import changed, leaves
from ostinato.kvstore.server_core import ServerCore
from ostinato.kvstore.server_desk import ServerDesk
from ostinato.kvstore.transport_in_process import InProcessTransport
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import create
from ostinato.runs import PerRank, RowCut

ROWS = torch.arange(33.0).view(11, 3)


def desks_of(servers: int, workers: int) -> list[ServerDesk]:
    return [ServerDesk(ServerCore(workers)) for _ in range(servers)]


def worker_on(desks: list[ServerDesk], rank: int, size: int, *, compresses: bool = False) -> AsyncStore:
    group: Any = SimpleNamespace(rank=rank, size=size)
    store = AsyncStore(group=group, transport=InProcessTransport(desks, worker=rank))
    if compresses:
        store.set_gradient_compression({"type": "2bit", "threshold": 0.25})
    store.set_optimizer(create("sgd", learning_rate=0.1, momentum=0.9, lazy_update=not compresses))
    store.init("matrix", torch.ones(7, 4))
    store.init("small", torch.ones(2))
    if not compresses:
        store.init("table", RowSparse(torch.arange(11), ROWS, (11, 3)))
    return store


@pytest.fixture(autouse=True)
def _cuts_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOUND_VARIABLE, "10")


def put_together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What a generation makes of the workers' parts: the common state is worker 0's."""

    def joined(path: tuple[Any, ...], leaf: Any) -> Any:
        if not isinstance(leaf, RowCut):
            return leaf
        cuts = [_at(part, path) for part in parts]
        assert [cut.first_row for cut in cuts] == sorted(cut.first_row for cut in cuts)
        whole = torch.cat([cut.tensor for cut in cuts])
        assert len(whole) == leaf.total_rows
        return whole

    def walked(tree: Any, path: tuple[Any, ...] = ()) -> Any:
        if isinstance(tree, dict):
            return {name: walked(below, (*path, name)) for name, below in tree.items()}
        return joined(path, tree)

    return walked(parts[0])


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_save_parts_that_make_the_whole(workers: int) -> None:
    desks = desks_of(3, workers)
    stores = [worker_on(desks, rank, workers) for rank in range(workers)]
    stores[0].push("matrix", torch.randn(7, 4))
    stores[0].push("table", RowSparse(torch.tensor([1]), torch.ones(1, 3), (11, 3)))  # one server alone has a state
    whole = stores[0].save_optimizer_states()
    assert whole["states"]["table"]["momentum"].shape == (11, 3)
    found = put_together([store.optimizer_states_in_parts() for store in stores])
    assert found["counts"] == whole["counts"]
    assert found["states"].keys() == whole["states"].keys() == {"matrix", "table"}
    for path, leaf in leaves(whole["states"]):
        assert torch.equal(_at(found["states"], path), leaf)
    rows = [store.rows_in_parts("table") for store in stores]
    table = torch.cat([part.tensor if isinstance(part, RowCut) else part for part in rows])
    expected = ROWS.clone()
    expected[1] -= 0.1
    assert torch.equal(table, expected)


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_another_number_of_servers_goes_on(servers: int) -> None:
    stores = [worker_on(desks, 0, 1) for desks in (desks_of(3, 1), desks_of(servers, 1))]
    before, after = stores
    gradient = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    before.push("matrix", gradient)
    before.push("table", RowSparse(torch.tensor([1, 9]), torch.ones(2, 3), (11, 3)))
    value = torch.empty(7, 4)
    before.pull("matrix", value)
    after.set_value("matrix", value)
    after.load_rows("table", before.rows_in_parts("table"))
    # Flat, as ranks that update slices would have saved it.
    states = before.optimizer_states_in_parts()
    flat = {**states["states"], "matrix": changed(states["states"]["matrix"], lambda leaf: leaf.reshape(-1))}
    after.load_optimizer_states({**states, "states": flat})
    for store in stores:
        store.push("matrix", gradient)
        store.push("table", RowSparse(torch.tensor([9]), torch.ones(1, 3), (11, 3)))
    results = []
    for store in stores:
        matrix = torch.empty(7, 4)
        store.pull("matrix", matrix)
        results.append((matrix, store.rows_in_parts("table")))
    for one, other in zip(*results, strict=True):
        assert isinstance(one, Tensor)
        torch.testing.assert_close(one, other)


def test_a_worker_keeps_its_own_residuals() -> None:
    desks = desks_of(2, 2)
    stores = [worker_on(desks, rank, 2, compresses=True) for rank in range(2)]
    for rank, store in enumerate(stores):
        store.push("small", torch.full((2,), 0.1 * (rank + 1)))
    saved = [store.residuals_in_parts() for store in stores]
    assert all(isinstance(part, PerRank) for part in saved)
    listed = stores[1].residuals()
    assert listed[0]["residuals"] == {}
    again = [worker_on(desks_of(2, 2), rank, 2, compresses=True) for rank in range(1)]
    again[0].load_residuals([part.state[0] for part in saved if isinstance(part, PerRank)])
    torch.testing.assert_close(again[0].residuals()[0]["residuals"]["small"], torch.full((2,), 0.1))
