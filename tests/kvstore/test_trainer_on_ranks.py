"""The parameter trainer over ranks: as one process on the joined batch, in every way of updating."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import run_on_ranks
from torch import Tensor, nn

from ostinato.dist import Alone
from ostinato.errors import StateError
from ostinato.kvstore import ParameterTrainer, TableParameter
from ostinato.kvstore.collective import CollectiveStore
from ostinato.kvstore.collective_agreement import CHECK_VARIABLE
from ostinato.kvstore.compression import CompressionScheme, Compressor, decode
from ostinato.kvstore.loss_scaler import LossScaler
from ostinato.optim.rules import Updater, create

SAMPLES = 12
"""Of the joined batch; they are shared out over one, two or four ranks."""
STEPS = 4
ADAM = {"learning_rate": 0.01}


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 30), nn.Tanh(), nn.Linear(30, 4))


def share(turn: int, rank: int, size: int) -> Tensor:
    joined = torch.randn(SAMPLES, 5, generator=torch.Generator().manual_seed(turn))
    return joined.chunk(size)[rank]


def loss(net: nn.Module, inputs: Tensor) -> Tensor:
    return net(inputs).pow(2).sum()


def trained(group: Any, **options: Any) -> dict[str, Any]:
    net = model()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(group.rank)  # the store begins with rank 0's
    store = CollectiveStore("dist_sync", group, bucket_bytes=300)
    trainer = ParameterTrainer(dict(net.named_parameters()), "adam", ADAM, kvstore=store, **options)
    # Before the first step every rank has weights of its own. This one updates nothing, and opens the store.
    trainer.step(1.0, ignore_stale_grad=True)
    for turn in range(STEPS):
        trainer.zero_grad()
        first, *others = share(turn, group.rank, group.size).split(2)
        with trainer.holding():
            for part in others:
                loss(net, part).backward()
        loss(net, first).backward()
        trainer.step(SAMPLES)
    state = trainer.state_dict()
    return {
        "weights": {name: value.detach().clone() for name, value in net.named_parameters()},
        "states": state["states"],
        "counts": state["counts"],
        "on_store": trainer.update_on_kvstore,
        "residuals": store.residuals(),
    }


def overflowing(group: Any, **options: Any) -> Any:
    """An infinite gradient on one rank; then a good step."""
    net = model()
    store = CollectiveStore("dist_sync", group, bucket_bytes=300)
    trainer = ParameterTrainer(dict(net.named_parameters()), "sgd", {"learning_rate": 0.1}, kvstore=store, **options)
    trainer.loss_scaler = LossScaler()
    before = [value.detach().clone() for value in net.parameters()]
    factor = torch.inf if group.rank == group.size - 1 else 1.0
    (trainer.scale_loss(loss(net, share(0, group.rank, group.size))) * factor).backward()
    trainer.step(SAMPLES)
    skipped = trainer.last_update_skipped
    same = all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    trainer.zero_grad()
    trainer.scale_loss(loss(net, share(0, group.rank, group.size))).backward()
    trainer.step(SAMPLES)
    return skipped, same, trainer.last_update_skipped, [value.detach().clone() for value in net.parameters()]


def hidden_overflow(group: Any, in_two: bool) -> Any:
    """An infinite gradient on one rank, which compression would turn into a finite one; then a good step."""
    net = model()
    store = CollectiveStore("dist_sync", group, bucket_bytes=300)
    compression = {"type": "2bit", "threshold": 0.05}
    trainer = ParameterTrainer(dict(net.named_parameters()), "adam", ADAM, store, compression, update_on_kvstore=False)
    trainer.loss_scaler = LossScaler(8.0)

    def turn(factor: float) -> list[Any]:
        trainer.zero_grad()
        (trainer.scale_loss(loss(net, share(0, group.rank, group.size))) * factor).backward()
        if in_two:
            trainer.allreduce_grads()
            trainer.update(SAMPLES)
        else:
            trainer.step(SAMPLES)
        residuals = [state["residuals"] for state in store.residuals()]
        kept = {name: residual.clone() for state in residuals for name, residual in sorted(state.items())}
        return [trainer.last_update_skipped, kept, *(value.detach().clone() for value in net.parameters())]

    turns = [turn(1.0), turn(torch.inf if group.rank == group.size - 1 else 1.0), turn(1.0)]
    return turns, trainer.loss_scaler.loss_scale, trainer.state_dict()["counts"]


def table_trained(group: Any, bound: str) -> Any:
    os.environ["MXNET_KVSTORE_BIGARRAY_BOUND"] = bound
    table = TableParameter("table", torch.arange(33.0).view(11, 3))
    store = CollectiveStore("dist_sync", group)
    trainer = ParameterTrainer({"table": table}, "sgd", {"learning_rate": 0.5, "lazy_update": True}, kvstore=store)
    for turn in range(3):
        rows = table.row_sparse_data(torch.tensor([group.rank + turn, 9]))
        rows.lookup(torch.tensor([9, group.rank + turn])).sum().backward()
        trainer.step(1)
    return table.all_rows()


def rare_rows(group: Any, update: str) -> Any:
    """A dense weight with row-sparse gradients, most of whose rows are rarely used; one value is set in between."""
    torch.manual_seed(5)
    words = nn.Embedding(9, 2, sparse=update != "dense")
    if update != "dense":
        words.weight.grad_stype = "row_sparse"
    settings = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.05, "update": update}
    store = CollectiveStore("dist_sync", group)
    trainer = ParameterTrainer({"words": words.weight}, "sgd", settings, kvstore=store)
    for turn in range(6):
        trainer.zero_grad()
        words(torch.tensor([0, turn, 8 - group.rank])).square().sum().backward()
        trainer.step(1)
        if turn == 3:
            trainer.set_data("words", torch.ones(9, 2))
    return words.weight.detach().clone()


def run_all(group: Any) -> dict[str, Any]:
    compressed = {"type": "2bit", "threshold": 0.05}
    return {
        "replicated": trained(group),
        "sharded": trained(group, update_on_kvstore=True),
        "compressed": trained(group, compression_params=compressed),
        "compressed and sharded": trained(group, compression_params=compressed, update_on_kvstore=True),
        "overflow": overflowing(group, update_on_kvstore=False),
        "overflow on the store": overflowing(group, update_on_kvstore=True),
        "hidden overflow": hidden_overflow(group, in_two=False),
        "hidden overflow in two": hidden_overflow(group, in_two=True),
        "rare rows, late": rare_rows(group, "dense_lazy"),
        "rare rows": rare_rows(group, "dense"),
        "whole table": table_trained(group, "1000"),
        "cut table": table_trained(group, "5"),
    }


@pytest.fixture(scope="module", params=[1, 2, 4], ids=["one rank", "two ranks", "four ranks"])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    if request.param == 1:
        yield [run_all(Alone())]
        return
    results = run_on_ranks(run_all, folder=tmp_path_factory.mktemp("ranks"), ranks=request.param)
    for result in results:
        assert result.error is None, result.output
    yield [result.value for result in results]


def plain(size: int, compressed: bool) -> tuple[dict[str, Tensor], Updater]:
    """One process, no trainer and no store: the sum of the shares' gradients, perhaps through the compression."""
    net = model()
    optimizer = create("adam", **ADAM)
    updater = Updater(optimizer)
    weights = dict(net.named_parameters())
    compressors = [Compressor(CompressionScheme("2bit", 0.05)) for _ in range(size)]
    optimizer.rescale_grad = 1 / SAMPLES
    for turn in range(STEPS):
        sums = {name: torch.zeros_like(value) for name, value in weights.items()}
        for rank in range(size):
            net.zero_grad()
            loss(net, share(turn, rank, size)).backward()
            for name, value in weights.items():
                gradient = value.grad
                if compressed:
                    packed = compressors[rank].compress(name, gradient)
                    gradient = decode(compressors[rank].scheme, packed, value.numel()).view_as(value)
                sums[name] += gradient
        updater(list(weights), list(sums.values()), [value.detach() for value in weights.values()])
    return {name: value.detach() for name, value in weights.items()}, updater


@pytest.mark.parametrize("way", ["replicated", "sharded", "compressed", "compressed and sharded"])
def test_ranks_train_like_one_process_on_the_joined_batch(ranks: list[dict[str, Any]], way: str) -> None:
    weights, updater = plain(len(ranks), way.startswith("compressed"))
    for values in ranks:
        found = values[way]
        assert found["on_store"] is ("sharded" in way)
        for name, expected in weights.items():
            torch.testing.assert_close(found["weights"][name], expected, rtol=1e-4, atol=1e-5)
            for part, value in updater.states[name].items():
                torch.testing.assert_close(found["states"][name][part], value, rtol=1e-4, atol=1e-5)
            assert torch.equal(found["weights"][name], ranks[0][way]["weights"][name])
        assert found["counts"] == updater.counts
        assert len(found["residuals"]) == (len(ranks) if way.startswith("compressed") else 0)


@pytest.mark.parametrize("way", ["overflow", "overflow on the store"])
def test_an_overflow_on_one_rank_skips_the_step_on_all(ranks: list[dict[str, Any]], way: str) -> None:
    net = model()
    loss(net, share(0, 0, 1)).backward()
    expected = [value.detach() - 0.1 * value.grad / SAMPLES for value in net.parameters()]
    for values in ranks:
        skipped, same, again, weights = values[way]
        assert (skipped, same, again) == (True, True, False)
        for found, value in zip(weights, expected, strict=True):
            torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("way", ["hidden overflow", "hidden overflow in two"])
def test_an_overflow_that_compression_would_hide_skips_the_step_on_all(ranks: list[dict[str, Any]], way: str) -> None:
    for values in ranks:
        (before, bad, good), scale, counts = values[way]
        assert [before[0], bad[0], good[0]] == [False, True, False]
        assert before[1]
        assert before[1].keys() == bad[1].keys()
        assert all(torch.equal(before[1][name], bad[1][name]) for name in before[1])
        assert all(torch.equal(one, other) for one, other in zip(before[2:], bad[2:], strict=True))
        assert not any(torch.equal(one, other) for one, other in zip(bad[2:], good[2:], strict=True))
        assert scale == 4.0
        assert set(counts.values()) == {2}


def test_rows_whose_updates_were_put_off_are_up_to_date_when_they_are_pulled(ranks: list[dict[str, Any]]) -> None:
    for values in ranks:
        torch.testing.assert_close(values["rare rows, late"], ranks[0]["rare rows"])


@pytest.mark.parametrize("kind", ["whole table", "cut table"])
def test_a_table_is_updated_by_the_rows_of_all_ranks(ranks: list[dict[str, Any]], kind: str) -> None:
    expected = torch.arange(33.0).view(11, 3)
    for turn in range(3):
        for rank in range(len(ranks)):
            expected[rank + turn] -= 0.5
            expected[9] -= 0.5
    for values in ranks:
        torch.testing.assert_close(values[kind], expected)


def named_in_the_trainer(group: Any) -> list[Any]:
    """The store by its name, in a group that is there already."""
    net = model()
    trainer = ParameterTrainer(dict(net.named_parameters()), "sgd", {"learning_rate": 0.1}, kvstore="dist_sync")
    for turn in range(2):
        trainer.zero_grad()
        loss(net, share(turn, group.rank, group.size)).backward()
        trainer.step(SAMPLES)
    store = trainer.kvstore
    assert store is not None
    return [store.rank, store.num_workers, [value.detach().clone() for value in net.parameters()]]


def disagreeing(group: Any, setting: str) -> None:
    """Everything alike but one setting of the optimizer, or the batch size."""
    net = model()
    trainer = ParameterTrainer(dict(net.named_parameters()), "sgd", {"learning_rate": 0.125}, kvstore="dist_sync")
    for turn in range(2):
        different = turn == 1 and group.rank == 1
        if different and setting == "rate":
            trainer.set_learning_rate(0.375)
        trainer.zero_grad()
        loss(net, share(turn, group.rank, group.size)).backward()
        trainer.step(SAMPLES / 2 if different and setting == "scale" else SAMPLES)


@pytest.mark.parametrize(("setting", "values"), [("rate", ["0.125", "0.375"]), ("scale", ["0.0833", "0.1666"])])
def test_ranks_with_other_rates_or_scales_are_told_when_asked(tmp_path: Path, setting: str, values: list[str]) -> None:
    for result in run_on_ranks(disagreeing, setting, folder=tmp_path, environment={CHECK_VARIABLE: "1"}):
        assert isinstance(result.error, StateError), result.output
        for value in values:
            assert value in str(result.error)


def test_a_synchronous_store_without_other_processes_has_one_worker() -> None:
    net = model()
    trainer = ParameterTrainer(dict(net.named_parameters()), "sgd", {"learning_rate": 0.1}, kvstore="dist_sync")
    before = [value.detach().clone() for value in net.parameters()]
    loss(net, share(0, 0, 1)).backward()
    trainer.step(SAMPLES)
    assert trainer.kvstore is not None
    assert (trainer.kvstore.rank, trainer.kvstore.num_workers) == (0, 1)
    for was, value in zip(before, net.parameters(), strict=True):
        torch.testing.assert_close(value.detach(), was - 0.1 * value.grad / SAMPLES)


def test_a_store_named_in_the_trainer_finds_its_workers(tmp_path: Path) -> None:
    net = model()
    for turn in range(2):
        net.zero_grad()
        loss(net, share(turn, 0, 1)).backward()
        with torch.no_grad():
            for value in net.parameters():
                value -= 0.1 * value.grad / SAMPLES
    for rank, result in enumerate(run_on_ranks(named_in_the_trainer, folder=tmp_path)):
        assert result.error is None, result.output
        assert result.value[:2] == [rank, 2]
        for found, value in zip(result.value[2], net.parameters(), strict=True):
            torch.testing.assert_close(found, value.detach(), rtol=1e-4, atol=1e-6)
