from __future__ import annotations

import copy
import logging
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_processes import run_on_ranks
from rank_threads import on_ranks
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from ostinato.dist import Alone
from ostinato.extensions import StandardEvaluator
from ostinato.loop import Extension, StandardUpdater, Trainer, report, scope

DATA = torch.linspace(-1, 1, 33)


def batches(size: int = 4) -> list[torch.Tensor]:
    return [part.reshape(-1, 1) for part in DATA.split(size)]


def model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Linear(1, 1)


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    """Notes which rows were read."""

    def __init__(self, number: int = 33) -> None:
        self.number, self.read = number, list[int]()

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> torch.Tensor:
        self.read.append(index)
        return DATA[index].reshape(1)


# --- means -----------------------------------------------------------------------------------------------------------


def test_a_value_counts_as_often_as_there_are_samples_in_its_batch() -> None:
    def mean(batch: torch.Tensor) -> None:
        report("mean", batch.mean())
        report("own", (batch.mean(), 1.0 if len(batch) == 1 else 0.0))

    found = StandardEvaluator(model(), batches(), mean)()
    assert found["mean"] == pytest.approx(float(DATA.mean()), abs=1e-7)
    assert found["own"] == float(DATA[-1])
    unweighted = StandardEvaluator(model(), batches(), mean, weight_by_batch=False)()
    assert unweighted["mean"] == pytest.approx(sum(float(batch.mean()) for batch in batches()) / 9)


class Asked(nn.Module):
    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return {"count": float(len(arguments)), "names": float(len(keywords))}


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        (torch.zeros(3), {"count": 1, "names": 0}),
        ((torch.zeros(3), torch.zeros(3)), {"count": 2, "names": 0}),
        ({"a": torch.zeros(3), "b": 1, "c": 2}, {"count": 0, "names": 3}),
    ],
)
def test_the_shape_of_the_batch_decides_how_the_model_is_called(batch: Any, found: dict[str, float]) -> None:
    assert StandardEvaluator(Asked(), [batch]).evaluate() == found


def test_results_may_be_reported_or_returned_and_losses_may_have_names() -> None:
    class Own(StandardEvaluator):
        def evaluate_core(self, batch: Any) -> Any:
            report("reported", 1)
            return {"returned": 2}

    net = model()
    assert Own(net, [batches()[0]])() == {"reported": 1.0, "returned": 2.0}
    assert StandardEvaluator(net, batches(), lambda batch: 3)() == {"main": 3.0}
    one = StandardEvaluator(net, batches(33), loss_function=lambda out, batch: out.mean(), prefix="validation/")
    assert list(one()) == ["validation/main"]
    two = StandardEvaluator(
        net, batches(33), loss_function={"a": lambda out, batch: out.mean(), "b": lambda out, batch: batch.sum()}
    )
    assert two()["a"] == one()["validation/main"]
    assert two()["b"] == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(TypeError, match="evaluation of a batch returned list, and no numbers"):
        StandardEvaluator(net, batches(), lambda batch: [1])()


def test_the_loader_may_be_made_anew_each_time() -> None:
    made = []

    def loader() -> Any:
        made.append(len(made))
        return iter(batches()[: len(made)])

    evaluator = StandardEvaluator(model(), loader, lambda batch: len(batch))
    assert [evaluator()["main"] for _ in range(2)] == [4.0, 4.0]
    assert made == [0, 1]


def test_a_set_without_batches_is_an_error_with_both_numbers() -> None:
    empty = DataLoader(TensorDataset(torch.zeros(3, 1)), batch_size=8, drop_last=True)
    with pytest.raises(RuntimeError, match=r"DataLoader yields no batch: 3 samples, 8 in a batch, incomplete batches"):
        StandardEvaluator(model(), empty)()
    with pytest.raises(RuntimeError, match="list yields no batch"):
        StandardEvaluator(model(), [])()


def test_wrong_arguments_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="There is no device 'gpu'"):
        StandardEvaluator(nn.Identity(), [], device="gpu")
    with pytest.raises(TypeError, match="The function of an evaluator must be a function, not 'accuracy'"):
        StandardEvaluator(nn.Identity(), [], "accuracy")  # pyrefly: ignore
    with pytest.raises(TypeError, match="The loss function must be a function"):
        StandardEvaluator(nn.Identity(), [], loss_function={"main": 1})  # pyrefly: ignore


# --- training does not notice ---------------------------------------------------------------------------------------


def test_every_module_has_the_mode_it_had_also_after_an_exception() -> None:
    net = nn.Sequential(nn.Linear(1, 2), nn.Sequential(nn.BatchNorm1d(2), nn.Dropout()), nn.Linear(2, 1))
    other = nn.Linear(1, 1).eval()
    net.train()
    net[1][0].eval()  # somebody froze its running statistics
    before = [module.training for module in (*net.modules(), other)]
    seen = []

    def look(batch: Any) -> None:
        seen.append((any(module.training for module in (*net.modules(), other)), torch.is_grad_enabled()))
        if len(seen) == 10:
            raise MemoryError

    evaluator = StandardEvaluator({"a": net, "b": other}, batches(), look)
    evaluator()
    assert [module.training for module in (*net.modules(), other)] == before
    with pytest.raises(MemoryError):
        evaluator()
    assert [module.training for module in (*net.modules(), other)] == before
    assert seen == [(False, False)] * 10
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("fails", [False, True])
def test_all_generators_have_the_states_they_had(fails: bool) -> None:
    own = torch.Generator().manual_seed(7)

    def draw(batch: Any) -> float:
        numbers = random.random() + np.random.rand() + float(torch.rand(()))
        if fails:
            raise MemoryError
        return numbers

    def states() -> Any:
        return random.getstate()[1], np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(), own.get_state()  # type: ignore[index,union-attr]

    evaluator = StandardEvaluator(model(), DataLoader(Rows(), batch_size=4, shuffle=True, generator=own), draw)
    before = states()
    if fails:
        with pytest.raises(MemoryError):
            evaluator()
    else:
        assert evaluator() == evaluator()
    after = states()
    assert before[:3] == after[:3]
    assert torch.equal(before[3], after[3])


@settings(max_examples=15)
@given(period=st.integers(1, 12))
def test_the_trained_weights_do_not_depend_on_how_often_one_evaluates(period: int) -> None:
    def trained(period: int | None) -> list[torch.Tensor]:
        torch.manual_seed(9)
        net = nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 1))
        updater = StandardUpdater(
            net,
            torch.optim.Adam(net.parameters(), lr=0.02),
            DataLoader(Rows(), batch_size=4, shuffle=True, drop_last=True),
            loss_function=lambda out, batch: out.square().mean(),
        )
        trainer = Trainer(updater, (12, "iteration"))
        if period is not None:
            loader = DataLoader(Rows(), batch_size=5, shuffle=True)
            evaluator = StandardEvaluator(net, loader, lambda b: net(b).sum() + torch.rand(()), prefix="validation/")
            trainer.extend(evaluator, trigger=(period, "iteration"))
        trainer.run()
        return list(net.state_dict().values())

    assert all(torch.equal(a, b) for a, b in zip(trained(period), trained(None), strict=True))


# --- reports --------------------------------------------------------------------------------------------------------


def test_means_are_reported_to_the_scope_and_returned(caplog) -> None:
    evaluator = StandardEvaluator(model(), batches(), lambda batch: {"loss": 1.5}, prefix="eval/")
    outside: dict[str, Any] = {}
    with scope(outside):
        assert evaluator() == {"eval/loss": 1.5}
    assert outside == {"eval/loss": 1.5}
    assert evaluator.evaluate() == {"eval/loss": 1.5}


def test_a_name_that_training_reports_too_gives_one_warning(caplog) -> None:
    net = model()
    updater = StandardUpdater(
        net, torch.optim.SGD(net.parameters(), lr=0.1), batches(), loss_function=lambda o, b: o.sum()
    )
    trainer = Trainer(updater, (3, "iteration"))
    trainer.extend(StandardEvaluator(net, batches(), lambda batch: 7.0), trigger=(1, "iteration"))
    seen = []
    trainer.extend(lambda t: seen.append(t.observation["main"]), name="look")
    with caplog.at_level(logging.WARNING):
        trainer.run()
    assert seen == [7.0] * 3
    assert len(caplog.records) == 1
    assert "reports 'main'" in caplog.text
    assert "prefix" in caplog.text


def test_it_comes_before_those_that_read_and_runs_once_per_epoch_by_default() -> None:
    net = model()
    updater = StandardUpdater(
        net, torch.optim.SGD(net.parameters(), lr=0.1), batches(), loss_function=lambda o, b: o.sum()
    )
    seen = []
    trainer = Trainer(updater, (2, "epoch"))
    trainer.extend(lambda t: seen.append("loss" in t.observation), name="look")
    trainer.extend(StandardEvaluator(net, batches(), lambda batch: {"loss": 1.0}))
    trainer.run()
    assert trainer.name_of(trainer.get_extension("validation")) == "validation"
    assert [place + 1 for place, found in enumerate(seen) if found] == [9, 18]


# --- what else is done meanwhile ------------------------------------------------------------------------------------


def test_what_else_is_done_has_a_period_of_its_own_and_rests_as_the_model_does() -> None:
    net = nn.Dropout()
    calls: list[Any] = []
    trainer = SimpleNamespace(
        updater=SimpleNamespace(state=SimpleNamespace(iteration=0)), observation={}, group=Alone()
    )

    def write_samples(trainer: Any) -> None:
        calls.append((trainer.updater.state.iteration, net.training, torch.is_grad_enabled()))
        torch.rand(3)
        report("samples", 4)

    def evaluator() -> StandardEvaluator:
        return StandardEvaluator(
            net, [torch.zeros(1)], lambda b: 0, also={"samples": (write_samples, (5, "iteration"))}
        )

    before = torch.get_rng_state()
    first = evaluator()
    first.initialize(trainer)
    observed: dict[str, Any] = {}
    for iteration in range(3, 25, 3):
        trainer.updater.state.iteration, trainer.observation = iteration, {}
        with scope(observed):
            first(trainer)
        if iteration == 12:  # a resume
            state = first.state_dict()
            first = evaluator()
            first.load_state_dict(copy.deepcopy(state))
            first.initialize(trainer)
    assert calls == [(iteration, False, False) for iteration in (6, 12, 15, 21)]
    assert observed == {"main": 0.0, "samples": 4}
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ValueError, match="saved state of validation has format 9"):
        first.load_state_dict({**state, "format": 9})


# --- several ranks --------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(ranks=st.integers(2, 5), size=st.integers(1, 40), choose=st.booleans())
def test_the_ranks_share_the_batches_and_report_the_means_of_one_process(ranks: int, size: int, choose: bool) -> None:
    net = model()

    def measure(batch: torch.Tensor) -> dict[str, Any]:
        return {"a": net(batch).sum() / 7, "b": (batch.square().sum(), 0.1 * len(batch))}

    def loader() -> Any:
        return DataLoader(Rows(), batch_size=size) if choose else batches(size)

    alone = StandardEvaluator(net, loader(), measure)()
    loaders = [loader() for _ in range(ranks)]

    def on_rank(group: Any) -> dict[str, float]:
        return StandardEvaluator(net, loaders[group.rank], measure, group=group)()

    assert on_ranks(ranks, on_rank) == [alone] * ranks
    if choose:  # nothing was read twice, and nothing for another rank
        assert sorted(row for one in loaders for row in one.dataset.read) == list(range(33))


def test_a_loader_that_cuts_the_data_itself_is_refused_unless_that_is_wanted() -> None:
    def on_rank(group: Any, shard: bool) -> Any:
        sampler = DistributedSampler(Rows(), group.size, group.rank, shuffle=False)
        loader = DataLoader(Rows(), batch_size=4, sampler=sampler)
        return StandardEvaluator(model(), loader, lambda b: b.sum() * 0 + 1, group=group, shard=shard)()

    with pytest.raises(ValueError, match="DistributedSampler already cuts the data for 3 ranks"):
        on_ranks(3, lambda group: on_rank(group, True))
    assert on_ranks(3, lambda group: on_rank(group, False)) == [{"main": 1.0}] * 3


def test_a_set_that_is_empty_on_every_rank_is_an_error_on_every_rank() -> None:
    def on_rank(group: Any) -> str:
        with pytest.raises(RuntimeError) as caught:
            StandardEvaluator(model(), [], lambda b: 0, group=group)()
        return str(caught.value)

    assert all("list yields no batch" in message for message in on_ranks(2, on_rank))


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def evaluate_in_a_job(group: Any) -> dict[str, Any]:
    """Trains on a rank of a real job, and evaluates in every way."""
    torch.manual_seed(1)
    net = nn.parallel.DistributedDataParallel(Norm())
    rows = Rows()
    rows.number = 4
    updater = StandardUpdater(
        net,
        torch.optim.SGD(net.parameters(), lr=0.1),
        DataLoader(Rows(), batch_size=3, sampler=DistributedSampler(Rows(), group.size, group.rank)),
        loss_function=lambda out, batch: out.square().mean(),
    )
    torch.manual_seed(group.rank)  # from here on the ranks draw different numbers
    means: dict[str, Any] = {}

    class Keep(Extension):
        priority = 0

        def __call__(self, trainer: Any) -> None:
            means.update(trainer.observation)
            means["buffers"] = {name: value.tolist() for name, value in net.module.named_buffers()}

    def size(out: Any, batch: Any) -> Any:
        return out.square().mean()

    trainer = Trainer(updater, (4, "iteration"), group=group, out="out")
    shuffled = DataLoader(Rows(), batch_size=4, shuffle=True)
    once = {"trigger": (4, "iteration")}
    trainer.extend(StandardEvaluator(net, shuffled, loss_function=size, prefix="shared/"), **once)
    ordered = DataLoader(Rows(), batch_size=4)
    trainer.extend(StandardEvaluator(net, ordered, loss_function=size, prefix="ordered/"), **once)
    few = DataLoader(rows, batch_size=4)  # one batch: nothing for the second rank
    trainer.extend(StandardEvaluator(net, few, loss_function=size, prefix="few/"), **once)
    trainer.extend(StandardEvaluator(net, ordered, loss_function=size, prefix="whole/"), ranks=0, **once)
    trainer.extend(Keep(), "keep", **once)
    trainer.run()
    means["read"] = len(shuffled.dataset.read) + len(few.dataset.read)  # type: ignore[attr-defined]
    means["samples"] = updater.state.samples
    return means


def test_ranks_of_a_real_job_report_the_same_means_as_rank_0_alone(tmp_path) -> None:
    results = run_on_ranks(evaluate_in_a_job, folder=tmp_path)
    assert [result.error for result in results] == [None, None]
    first, second = (result.value for result in results)
    names = ("shared/main", "ordered/main", "few/main")
    assert [first[name] for name in names] == [second[name] for name in names]
    assert first["ordered/main"] == first["whole/main"]
    assert first["shared/main"] == pytest.approx(first["ordered/main"], rel=1e-5)
    assert "whole/main" not in second
    assert first["buffers"] != second["buffers"]  # so the means could have differed, and training goes on with its own
    assert (first["read"] + second["read"], first["samples"]) == (33 + 4, 24)
