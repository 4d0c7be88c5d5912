"""Runs of the loop through a store, saved by four ranks, gone on with by one, two and three."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import run_on_ranks
from torch import Tensor, nn

from ostinato.dist import Alone
from ostinato.extensions.save import Snapshot
from ostinato.kvstore import CollectiveStore, LoopOptimizer, ParameterTrainer, TableParameter
from ostinato.kvstore.row_sparse_tables import BOUND_VARIABLE
from ostinato.loop.standard_updater import StandardUpdater
from ostinato.loop.trainer import Trainer

SAMPLES = 12
"""In a batch of all ranks together; one, two, three and four ranks share it out equally."""
ROWS = 23
SAVED, END = 5, 9
COMPRESSION = {"type": "2bit", "threshold": 0.02}
WAYS: dict[str, dict[str, Any]] = {
    "replicated": {"optimizer": "adam", "update_on_kvstore": False},
    "sliced": {"optimizer": "adam", "update_on_kvstore": True},
    "owned": {"optimizer": "lamb", "update_on_kvstore": True, "arguments": {"aggregate_num": 1}},
    "of torch": {"optimizer": "torch.AdamW", "update_on_kvstore": True},
    "compressed": {"optimizer": "adam", "compression_params": COMPRESSION, "update_on_kvstore": True},
    "compressed replicas": {"optimizer": "adam", "compression_params": COMPRESSION, "update_on_kvstore": False},
    "frozen rows": {"optimizer": "sgd", "arguments": {"momentum": 0.9, "update": "frozen", "wd": 0.01}},
    "late rows": {"optimizer": "sgd", "arguments": {"momentum": 0.9, "update": "dense_lazy", "wd": 0.01}},
}
_EXIT = {"save_optimizer": "exit"}
_OLD = {"rows_with_optimizer": True}
POLICIES: dict[str, tuple[str, list[tuple[int, dict[str, Any]]], int]] = {
    "never": ("frozen rows", [(SAVED, {"save_optimizer": "never"})], 0),
    "never, and late": ("late rows", [(SAVED, {"save_optimizer": "never"})], 0),
    "exit": ("frozen rows", [(3, _EXIT), (6, {**_EXIT, "save_last": False})], 3),
    "old form": ("frozen rows", [(SAVED, _OLD)], SAVED),
    "old form, then exit": ("frozen rows", [(3, _OLD), (6, {**_EXIT, "save_last": False})], 3),
}
"""How a table is trained; the runs that save it one after the other: up to where, and with which settings; and of which
iteration the optimizer state is that goes with the rows of the last one."""
UNCOMPRESSED = [way for way, options in WAYS.items() if "compression_params" not in options]


class Model(nn.Module):
    """Three dense weights, one of them a single number, and perhaps a table whose rows are pulled."""

    def __init__(self, table: TableParameter | None) -> None:
        super().__init__()
        self.inside = nn.Linear(3, 5)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.table = [table]

    def forward(self, words: Tensor) -> Tensor:
        (table,) = self.table
        if table is None:
            rows = torch.sin(words[:, None] * torch.tensor([0.3, 0.5, 0.7]))
        else:
            rows = table.row_sparse_data(words).lookup(words)
        return (self.inside(rows).tanh() * self.scale).square().sum()


def batches(group: Any) -> list[Tensor]:
    """This rank's share of the same batches, however many ranks there are. Some rows are rarely looked up."""
    drawn = torch.Generator().manual_seed(7)
    joined = [(torch.randint(0, ROWS, (SAMPLES,), generator=drawn) // (turn + 1)) for turn in range(4)]
    return [batch.chunk(group.size)[group.rank] for batch in joined]


class Run:
    """A model, its trainer and the loop, in a run folder."""

    def __init__(
        self, group: Any, out: Path, limit: int, way: str, *, rows_with_optimizer: bool = False, **settings: Any
    ) -> None:
        options = dict(WAYS[way])
        arguments = options.pop("arguments", {})
        torch.manual_seed(group.rank)
        self.table = TableParameter("table", torch.randn(ROWS, 3)) if way.endswith("rows") else None
        model = Model(self.table)
        self.weights = dict(model.named_parameters())
        params: dict[str, Any] = dict(self.weights) | ({"table": self.table} if self.table is not None else {})
        self.store = CollectiveStore("dist_sync", group, bucket_bytes=40)
        self.parameters = ParameterTrainer(
            params,
            options.pop("optimizer"),
            {"learning_rate": 0.05, **arguments},
            kvstore=self.store,
            **options,
        )
        optimizer = LoopOptimizer(self.parameters, [model], batch_size=SAMPLES)
        if rows_with_optimizer:  # the form of generations before rows were kept with the weights
            optimizer.weights_in_state = ()  # type: ignore[assignment]
        updater = StandardUpdater(model, optimizer, batches(group))  # type: ignore[arg-type]
        self.trainer = Trainer(updater, (limit, "iteration"), out=out, group=group)
        self.handed_over: list[int] = []
        state_dict = optimizer.state_dict

        def counted() -> dict[str, Any]:
            before = sum(self.store.handed_over.values())
            state = state_dict()
            self.handed_over.append(sum(self.store.handed_over.values()) - before)
            return state

        optimizer.state_dict = counted  # type: ignore[method-assign]
        self.trainer.extend(Snapshot(every=(2, "iteration"), **settings))

    def train(self) -> dict[str, Any]:
        """Go on up to the limit. What is found then, whole, on every rank."""
        self.trainer.run()
        self.parameters.open()
        state = self.parameters.state_dict()
        found = {
            "weights": {name: weight.detach().clone() for name, weight in self.weights.items()},
            "states": state["states"],
            "counts": state["counts"],
            "residuals": [one["residuals"] for one in state["residuals"]],
            "moved by saving": sum(self.handed_over),
            "rows": None if self.table is None else self.stored_rows(),
        }
        self.store.close()
        return found

    def stored_rows(self) -> Tensor:
        """The table as it is stored, which leaves put-off updates put off."""
        table = self.store._keys.tables[self.parameters.parameters["table"].index]
        assert table.is_cut == (self.store.num_workers > 1)
        return table.gathered(table.stored)


def on_four(group: Any, folder: Path) -> dict[str, Any]:
    os.environ[BOUND_VARIABLE] = "20"
    found = {}
    for way in WAYS:
        straight = Run(group, folder / "straight" / way, END, way).train()
        saved = [Run(group, folder / name / way, SAVED, way).train() for name in ("for 1", "for 2", "for 3")]
        found[way] = straight, saved[0]
    for policy, (way, runs, _) in POLICIES.items():
        for name in ("for 1", "for 2", "for 3"):
            for limit, settings in runs:
                found[policy] = Run(group, folder / name / policy, limit, way, **settings).train()
    return found


def going_on(group: Any, folder: Path) -> dict[str, Any]:
    os.environ[BOUND_VARIABLE] = "20"
    found = {}
    for way in WAYS:
        out = folder / f"for {group.size}" / way
        found[way] = Run(group, out, SAVED, way).train(), Run(group, out, END, way).train()
    for policy, (way, runs, _) in POLICIES.items():
        out = folder / f"for {group.size}" / policy
        found[policy] = Run(group, out, runs[-1][0], way).train(), Run(group, out, END, way).train()
    return found


def values_of(results: list[Any]) -> list[dict[str, Any]]:
    for result in results:
        assert result.error is None, result.output
    return [result.value for result in results]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("runs")
    return folder, values_of(run_on_ranks(on_four, folder, folder=tmp_path_factory.mktemp("four"), ranks=4))


@pytest.fixture(scope="module", params=[1, 2, 3], ids=["one rank", "two ranks", "three ranks"])
def gone_on(
    request: pytest.FixtureRequest, saved: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    if request.param == 1:
        before = os.environ.get(BOUND_VARIABLE)
        try:
            return [going_on(Alone(), saved[0])]
        finally:
            os.environ.pop(BOUND_VARIABLE)
            if before is not None:
                os.environ[BOUND_VARIABLE] = before
    ranks = request.param
    return values_of(run_on_ranks(going_on, saved[0], folder=tmp_path_factory.mktemp("others"), ranks=ranks))


def leaves_of(tree: Any, path: str = "") -> dict[str, Any]:
    if isinstance(tree, dict):
        return {k: v for name, below in tree.items() for k, v in leaves_of(below, f"{path}/{name}").items()}
    if isinstance(tree, list):
        return {k: v for name, below in enumerate(tree) for k, v in leaves_of(below, f"{path}/{name}").items()}
    return {path: tree}


def same_bits(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
    return one == other


@pytest.mark.parametrize("way", WAYS)
def test_what_is_loaded_has_the_bits_that_were_saved(
    saved: tuple[Path, list[dict[str, Any]]], gone_on: list[dict[str, Any]], way: str
) -> None:
    expected = saved[1][0][way][1]
    for values in gone_on:
        loaded = values[way][0]
        for part in ("weights", "states", "counts", "rows"):
            found, wanted = leaves_of(loaded[part]), leaves_of(expected[part])
            assert found.keys() == wanted.keys()
            for name, value in wanted.items():
                assert same_bits(found[name], value), (part, name)


@pytest.mark.parametrize("way", UNCOMPRESSED)
def test_training_goes_on_as_if_nothing_had_happened(
    saved: tuple[Path, list[dict[str, Any]]], gone_on: list[dict[str, Any]], way: str
) -> None:
    expected = saved[1][0][way][0]
    for values in gone_on:
        found = values[way][1]
        assert found["counts"] == expected["counts"]
        for part in ("weights", "states", "rows"):
            for name, value in leaves_of(expected[part]).items():
                if isinstance(value, Tensor) and value.is_floating_point():
                    torch.testing.assert_close(leaves_of(found[part])[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["compressed", "compressed replicas"])
def test_what_compression_owed_is_owed_in_sum(
    saved: tuple[Path, list[dict[str, Any]]], gone_on: list[dict[str, Any]], way: str
) -> None:
    old = saved[1][0][way][1]["residuals"]
    assert len(old) == 4
    size = len(gone_on)
    for values in gone_on:
        new = values[way][0]["residuals"]
        assert len(new) == size
        for rank, residuals in enumerate(new):
            for name, value in residuals.items():
                # Rank r of W takes over the old ranks r, r + W, ... in this order.
                mine = [one[name] for one in old[rank::size]]
                total = mine[0].clone()
                for one in mine[1:]:
                    total += one
                assert torch.equal(value, total)
                assert bool(value.any())


@pytest.mark.parametrize("way", WAYS)
def test_saving_moves_nothing_between_the_ranks(saved: tuple[Path, list[dict[str, Any]]], way: str) -> None:
    for values in saved[1]:
        assert values[way][0]["moved by saving"] == 0


@pytest.mark.parametrize(
    ("way", "file"),
    [
        ("sliced", "optimizer-slices"),
        ("owned", "optimizer-slices"),
        ("frozen rows", "table_rows"),
        ("late rows", "optimizer-table_states"),
    ],
)
def test_every_rank_writes_what_it_owns(saved: tuple[Path, Any], way: str, file: str) -> None:
    newest = max((saved[0] / "straight" / way / "generations").iterdir())
    assert sorted(path.name for path in newest.glob(f"{file}-*")) == [
        f"{file}-{rank:05}-of-00004.safetensors" for rank in range(4)
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_are_saved_whatever_is_saved_of_the_optimizer(
    saved: tuple[Path, list[dict[str, Any]]], gone_on: list[dict[str, Any]], policy: str
) -> None:
    expected = saved[1][0][policy]
    for values in gone_on:
        loaded, trained = values[policy]
        assert torch.equal(loaded["rows"], expected["rows"])
        assert loaded["counts"].get("table", 0) == POLICIES[policy][2]
        assert not torch.equal(trained["rows"], expected["rows"])
