"""Several replicas in each of several processes, and what ranks have to agree on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from kvstore_stand_ins import backward, backward_all, two_parameters
from rank_processes import run_on_ranks
from torch import Tensor, nn

from ostinato import gluon
from ostinato.errors import UpdateRefusedError
from ostinato.kvstore import ParameterTrainer, replica_parameters, replicate

RANKS, REPLICAS, STEPS = 2, 2, 4
SETTINGS = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}


def model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def batch(step: int) -> Tensor:
    return torch.randn(8, 3, generator=torch.Generator().manual_seed(step))


def trained(rank: int, ranks: int, replicas: int, store: str | None, on_store: bool) -> list[list[Tensor]]:
    """The parameters of every replica after a few steps; every rank begins with other weights."""
    copies = replicate(model(rank), ["cpu"] * replicas)
    trainer = ParameterTrainer(
        replica_parameters(copies), "sgd", SETTINGS, kvstore=store, update_on_kvstore=on_store if store else None
    )
    trainer.open()
    for step in range(STEPS):
        if step == 2:  # a checkpoint, loaded into the first replica of every rank in the middle of training
            copies[0].load_state_dict(model(99).state_dict())
            for other in copies[1:]:
                other.load_state_dict(model(99).state_dict())
        trainer.zero_grad()
        shares = batch(step).chunk(ranks)[rank].chunk(replicas)
        for copy, share in zip(copies, shares, strict=True):
            copy(share).square().sum().backward()
        trainer.step(8)
    if trainer.kvstore is not None:
        trainer.kvstore.close()
    return [[parameter.detach().clone() for parameter in copy.parameters()] for copy in copies]


def overwritten(group: Any, on_store: bool) -> Any:
    """Gluon's loop: nobody clears gradients, and backward begins the exchange by itself."""
    weights = two_parameters(1)
    trainer = gluon.Trainer(weights, "sgd", {"learning_rate": 0.1}, kvstore="dist_sync", update_on_kvstore=on_store)
    for step in range(3):
        backward_all(weights, 7.0)  # replaced by the next pass
        backward_all(weights, float(step + group.rank))
        trainer.step(1)
    if trainer.kvstore is not None:
        trainer.kvstore.close()
    return [weights["a"][0].tolist(), weights["b"][0].tolist()]


def saved(group: Any, folder: Path) -> Any:
    """States are there for every rank when saving returns, and an error of rank 0 is one of all."""
    weights = two_parameters(1)
    trainers = [
        ParameterTrainer(weights, "adam", kvstore="dist_sync", update_on_kvstore=on_store) for on_store in (True, False)
    ]
    backward_all(weights)
    trainers[0].step(1)
    trainers[0].save_states(folder / "x.states")
    trainers[1].load_states(folder / "x.states")
    counts = trainers[1].state_dict()["counts"]
    errors = []
    try:
        trainers[0].save_states(folder / "missing" / "x.states")
    except Exception as error:
        errors.append(type(error).__name__)
    for trainer in trainers:
        if trainer.kvstore is not None:
            trainer.kvstore.close()
    return counts, errors


def on_a_rank(group: Any, folder: Path) -> dict[str, Any]:
    return {
        "saved": saved(group, folder),
        **{f"overwritten, {on_store}": overwritten(group, on_store) for on_store in (False, True)},
        "replicated": trained(group.rank, group.size, REPLICAS, "dist_sync", False),
        "sharded": trained(group.rank, group.size, REPLICAS, "dist_sync", True),
        **{f"stale, {on_store}": stale(group, on_store) for on_store in (False, True)},
    }


def stale(group: Any, on_store: bool) -> Any:
    """Freshness differs between the ranks: ``a`` has a gradient on the last rank alone, ``b`` on none."""
    weights = two_parameters(1)
    trainer = ParameterTrainer(weights, "sgd", {"learning_rate": 0.1}, kvstore="dist_sync", update_on_kvstore=on_store)
    trainer.open()
    if group.rank == group.size - 1:
        backward(weights, a=[[1.0, 2.0]])
    held = weights["a"][0].grad
    errors = []
    for _ in range(2):
        try:
            trainer.step(1)
        except UpdateRefusedError as error:
            errors.append(error.fields["parameters"])
    untouched = (weights["a"][0].tolist(), None if held is None else held.tolist())
    trainer.step(1, ignore_stale_grad=True)
    after_ignoring = [weights["a"][0].tolist(), weights["b"][0].tolist()]
    trainer.zero_grad()
    backward_all(weights)
    trainer.step(1)
    if trainer.kvstore is not None:
        trainer.kvstore.close()
    return errors, untouched, after_ignoring, [weights["a"][0].tolist(), weights["b"][0].tolist()]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    states = tmp_path_factory.mktemp("states")
    results = run_on_ranks(on_a_rank, states, folder=tmp_path_factory.mktemp("ranks"), ranks=RANKS)
    for result in results:
        assert result.error is None, result.output
    return [result.value for result in results]


@pytest.mark.parametrize("way", ["replicated", "sharded"])
def test_replicas_on_ranks_train_like_one_process_on_the_joined_batch(ranks: list[dict[str, Any]], way: str) -> None:
    (expected,) = trained(0, 1, 1, None, False)
    first = ranks[0][way][0]
    for found in (copy for values in ranks for copy in values[way]):
        for value, of_first, wanted in zip(found, first, expected, strict=True):
            assert torch.equal(value, of_first)
            torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("on_store", [False, True])
def test_ranks_raise_together_and_update_together(ranks: list[dict[str, Any]], on_store: bool) -> None:
    near: Callable[[Any], Any] = lambda values: [pytest.approx(value) for value in values]  # noqa: E731
    for rank, values in enumerate(ranks):
        errors, untouched, after_ignoring, last = values[f"stale, {on_store}"]
        assert errors == [["b"], ["b"]]
        assert untouched == ([1.0, 2.0], [1.0, 2.0] if rank == RANKS - 1 else None)
        assert after_ignoring == near([[0.9, 1.8], [-1.0]])
        assert last == near([[0.9 - 0.1 * RANKS, 1.8 - 0.1 * RANKS], [-1.0 - 0.1 * RANKS]])


@pytest.mark.parametrize("on_store", [False, True])
def test_gradients_that_backward_overwrites_are_exchanged_once(ranks: list[dict[str, Any]], on_store: bool) -> None:
    total = sum(step + rank for step in range(3) for rank in range(RANKS))
    for values in ranks:
        assert values[f"overwritten, {on_store}"] == [
            pytest.approx([1.0 - 0.1 * total, 2.0 - 0.1 * total]),
            pytest.approx([-1.0 - 0.1 * total]),
        ]


def test_states_are_there_for_every_rank_when_saving_returns(ranks: list[dict[str, Any]]) -> None:
    assert [values["saved"] for values in ranks] == [
        ({"a": 1, "b": 1}, ["FileNotFoundError"]),
        ({"a": 1, "b": 1}, ["StateError"]),
    ]
