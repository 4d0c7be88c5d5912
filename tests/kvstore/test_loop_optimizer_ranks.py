"""A run of the loop over ranks, through a store: saved by two, gone on with by two and by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import run_on_ranks
from torch import nn

from ostinato.dist import Alone
from ostinato.extensions.save import Snapshot
from ostinato.kvstore import LoopOptimizer, ParameterTrainer
from ostinato.loop.standard_updater import StandardUpdater
from ostinato.loop.trainer import Trainer

WAYS: dict[str, dict[str, Any]] = {
    "replicated": {"update_on_kvstore": False},
    "cut": {"update_on_kvstore": True},
    "compressed": {"update_on_kvstore": True, "compression_params": {"type": "2bit", "threshold": 0.01}},
}


def run(group: Any, out: Path, limit: int, way: str) -> list[list[float]]:
    """Train up to ``limit`` updates in a run folder; every rank begins with other weights and has its own data."""
    torch.manual_seed(group.rank)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    parameters = ParameterTrainer(dict(model.named_parameters()), "adam", kvstore="dist_sync", **WAYS[way])
    loader = [torch.full((2, 4), 0.1 * (number + 1) * (group.rank + 1)) for number in range(4)]
    updater = StandardUpdater(
        model,
        LoopOptimizer(parameters, [model]),  # type: ignore[arg-type]
        loader,
        loss_function=lambda result, _batch: result.square().mean(),
    )
    trainer = Trainer(updater, (limit, "iteration"), out=out, group=group)
    trainer.extend(Snapshot(every=(2, "iteration")))
    trainer.run()
    if parameters.kvstore is not None:
        parameters.kvstore.close()
    return [parameter.flatten().tolist() for parameter in model.parameters()]


def on_a_rank(group: Any, folder: Path) -> dict[str, Any]:
    found = {}
    for way in WAYS:
        straight = run(group, folder / f"{way} in one piece", 9, way)
        run(group, folder / f"{way} in two", 5, way)
        found[way] = straight, run(group, folder / f"{way} in two", 9, way)
        run(group, folder / f"{way} for one", 5, way)
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("runs")
    results = run_on_ranks(on_a_rank, folder, folder=tmp_path_factory.mktemp("ranks"))
    for result in results:
        assert result.error is None, result.output
    return folder, [result.value for result in results]


@pytest.mark.parametrize("way", WAYS)
def test_ranks_go_on_exactly(ranks: tuple[Path, list[dict[str, Any]]], way: str) -> None:
    _, values = ranks
    for found in values:
        straight, in_two = found[way]
        assert in_two == straight == values[0][way][0]


@pytest.mark.parametrize("way", WAYS)
def test_one_rank_goes_on_with_what_two_saved(ranks: tuple[Path, list[dict[str, Any]]], way: str) -> None:
    folder, values = ranks
    before = run(Alone(), folder / f"{way} for one", 5, way)
    after = run(Alone(), folder / f"{way} for one", 7, way)
    assert before != after
    assert before != values[0][way][0]
