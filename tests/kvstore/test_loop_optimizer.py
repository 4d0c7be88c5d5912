"""A parameter trainer inside the loop's updaters."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from kvstore_stand_ins import OtherRankStore, make, two_parameters
from torch import nn

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.extensions.save import Snapshot
from ostinato.kvstore import (
    LoopOptimizer,
    LossScaler,
    ParameterTrainer,
    TableParameter,
    replica_parameters,
    replicate,
    split_and_load,
)
from ostinato.loop.part import Part
from ostinato.loop.parts_updater import PartsUpdater
from ostinato.loop.reporter import report
from ostinato.loop.standard_updater import StandardUpdater
from ostinato.loop.trainer import Trainer


class TwoReplicas(StandardUpdater):
    """Trains two copies of a model, each on half of the batch."""

    replicas: list[nn.Module]

    def update_core(self, batch: Any) -> None:
        (optimizer,) = self.optimizers.values()
        optimizer.zero_grad()
        shares = split_and_load(batch, ["cpu", "cpu"])
        losses = [copy(share).square().mean() for copy, share in zip(self.replicas, shares, strict=True)]
        for loss in losses:
            loss.backward()
        optimizer.step()
        report("loss", torch.stack(losses).mean().detach())


def training(
    out: Path, limit: int, *, on_store: bool | None = None, replicas: int = 1, scaled: bool = False
) -> Trainer:
    torch.manual_seed(0)
    copies = replicate(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), ["cpu"] * replicas)
    parameters = ParameterTrainer(
        replica_parameters(copies),
        "adam",
        {"learning_rate": 0.01, "wd": 0.1},
        update_on_kvstore=on_store,
        compression_params={"type": "2bit", "threshold": 0.01} if on_store else None,
    )
    if scaled:
        parameters.loss_scaler = LossScaler(4.0, window=3)
    generator = torch.Generator().manual_seed(1)
    loader = [torch.randn(8, 4, generator=generator) for _ in range(7)]
    kind = TwoReplicas if replicas == 2 else StandardUpdater
    loss = None if replicas == 2 else lambda result, _batch: result.square().mean()
    updater = kind(copies[0], LoopOptimizer(parameters, copies), loader, loss_function=loss)  # type: ignore[arg-type]
    if isinstance(updater, TwoReplicas):
        updater.replicas = copies
    trainer = Trainer(updater, (limit, "iteration"), out=out)
    trainer.extend(Snapshot(every=(2, "iteration")))
    return trainer


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.updater.models["main"].parameters()]


@pytest.mark.parametrize(
    "settings",
    [{}, {"replicas": 2, "on_store": False}, {"replicas": 2, "on_store": True}],
    ids=["one replica", "two replicas", "on the store, compressed"],
)
def test_a_run_that_was_stopped_goes_on_exactly(tmp_path: Path, settings: dict[str, Any]) -> None:
    straight = training(tmp_path / "one", 11, **settings)
    straight.run()
    training(tmp_path / "two", 5, **settings).run()
    resumed = training(tmp_path / "two", 11, **settings)
    resumed.run()
    assert resumed.updater.state.iteration == 11
    for first, second in zip(weights(straight), weights(resumed), strict=True):
        assert torch.equal(first, second)


class Embedding(nn.Module):
    """Looks words up in a table, which a store has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale = nn.Parameter(torch.ones(3))
        self.table = [TableParameter("table", torch.randn(9, 3))]

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.table[0].row_sparse_data(words).lookup(words) * self.scale


def with_a_table(out: Path, limit: int, **settings: Any) -> tuple[torch.Tensor, int]:
    """Train up to a limit; the rows then, and how often the optimizer says that they were updated."""
    model = Embedding()
    (table,) = model.table
    arguments = {"learning_rate": 0.1, "momentum": 0.9}
    parameters = ParameterTrainer({"scale": model.scale, "table": table}, "sgd", arguments, kvstore="device")
    loader = [torch.tensor([1, 2, 5]), torch.tensor([2, 7, 7])]
    updater = StandardUpdater(
        model,
        parameters,  # type: ignore[arg-type]
        loader,  # type: ignore[arg-type]
        loss_function=lambda result, _batch: result.square().mean(),
    )
    trainer = Trainer(updater, (limit, "iteration"), out=out)
    trainer.extend(Snapshot(every=(2, "iteration"), **settings))
    trainer.run()
    parameters.open()
    return table.all_rows().clone(), parameters.state_dict()["counts"].get("table", 0)


def test_the_rows_of_a_table_are_there_though_the_optimizer_is_never_saved(tmp_path: Path) -> None:
    rows, _ = with_a_table(tmp_path, 5, save_optimizer="never")
    assert not torch.equal(rows, Embedding().table[0].initial_rows().values)
    after, updates = with_a_table(tmp_path, 5, save_optimizer="never")
    assert torch.equal(after, rows)
    assert updates == 0


def test_newer_rows_go_with_the_optimizer_state_of_an_earlier_exit(tmp_path: Path) -> None:
    with_a_table(tmp_path, 3, save_optimizer="exit")
    rows, _ = with_a_table(tmp_path, 6, save_optimizer="exit", save_last=False)
    after, updates = with_a_table(tmp_path, 6, save_optimizer="exit")
    assert torch.equal(after, rows)
    assert updates == 3


def test_it_steps_as_torch_does() -> None:
    ours, theirs = nn.Linear(3, 1), nn.Linear(3, 1)
    theirs.load_state_dict(ours.state_dict())
    batches = [torch.full((4, 3), 0.5 * number) for number in range(5)]
    parameters = ParameterTrainer(dict(ours.named_parameters()), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for model, optimizer in (
        (ours, LoopOptimizer(parameters)),
        (theirs, torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)),
    ):
        updater = StandardUpdater(model, optimizer, batches, loss_function=lambda y, _: y.square().mean())  # type: ignore[arg-type]
        for _ in range(5):
            updater.update()
    for first, second in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(first, second)


def test_the_sum_is_divided_by_the_number_of_losses_in_it() -> None:
    for parameters, expected in (
        (make(two_parameters(1)), 1.0),
        (make(two_parameters(3)), 3.0),
        (make(two_parameters(1), kvstore=OtherRankStore()), 2.0),
    ):
        optimizer = LoopOptimizer(parameters, ignore_stale_grad=True)
        optimizer.step()
        assert parameters.optimizer.rescale_grad == 1.0 / expected
    optimizer = LoopOptimizer(make(two_parameters()), batch_size=32, ignore_stale_grad=True)
    optimizer.step()
    assert optimizer.trainer.optimizer.rescale_grad == 1.0 / 32


def test_groups_can_be_read() -> None:
    given = two_parameters()
    optimizer = LoopOptimizer(make(given))
    (group,) = optimizer.param_groups
    assert group["params"] == [given["a"][0], given["b"][0]]
    assert group["lr"] == 0.1


def test_it_opens_before_the_first_pass_that_trains_and_not_before_one_that_looks() -> None:
    model = nn.Linear(2, 1)
    parameters = make(dict(model.named_parameters()))
    optimizer = LoopOptimizer(parameters, [model])
    other = copy.deepcopy(model)
    with torch.no_grad():
        model(torch.ones(1, 2))
    model.eval()
    model(torch.ones(1, 2))
    model.train()
    with pytest.raises(StateError, match="decided by the first step"):
        _ = parameters.update_on_kvstore
    model(torch.ones(1, 2)).sum().backward()
    assert parameters.update_on_kvstore is None
    assert not model._forward_pre_hooks
    optimizer.step()
    del optimizer, parameters
    other(torch.ones(1, 2))


def test_wrong_arguments_are_refused_at_once() -> None:
    model = nn.Linear(2, 2)
    trainer = make(dict(model.named_parameters()))
    for size in (0, -1.0):
        with pytest.raises(ArgumentValueError, match="The batch size is"):
            LoopOptimizer(trainer, batch_size=size)
    with pytest.raises(ArgumentTypeError, match="batch_size is a number"):
        LoopOptimizer(trainer, batch_size="8")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"Write \[model\]"):
        LoopOptimizer(trainer, model)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="not SGD"):
        LoopOptimizer(torch.optim.SGD(model.parameters()))  # type: ignore[arg-type]


def steps_of(optimizer_of: Any, updates: int = 3) -> list[torch.Tensor]:
    """Train a small model through an updater; give its weights."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    loader = [torch.full((2, 4), 0.5 + number) for number in range(2)]
    updater = StandardUpdater(
        model, optimizer_of(model), loader, loss_function=lambda result, _batch: result.square().mean()
    )
    Trainer(updater, (updates, "iteration")).run()
    assert isinstance(updater.optimizers["main"], LoopOptimizer)
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_an_updater_takes_a_parameter_trainer_as_its_optimizer() -> None:
    def trainer(model: nn.Module) -> ParameterTrainer:
        return ParameterTrainer(dict(model.named_parameters()), "adam")

    direct = steps_of(trainer)
    wrapped = steps_of(lambda model: LoopOptimizer(trainer(model), [model]))
    assert all(torch.equal(one, other) for one, other in zip(direct, wrapped, strict=True))


def trained_in_parts(optimizer_of: Any) -> list[torch.Tensor]:
    """Train two models by turns, one of them until the third update and with clipped gradients."""
    torch.manual_seed(0)
    models = nn.ModuleDict({"one": nn.Linear(3, 3), "two": nn.Linear(3, 1)})

    def loss(batch: torch.Tensor, _turn: Any) -> torch.Tensor:
        return models["two"](models["one"](batch)).square().mean()

    optimizers = {name: optimizer_of(model) for name, model in models.items()}
    parts = [Part("one", loss, stop=2, clip=0.5), Part("two", loss)]
    updater = PartsUpdater(dict(models), optimizers, [torch.ones(2, 3), torch.full((2, 3), 2.0)], parts)
    Trainer(updater, (4, "iteration")).run()
    return [parameter.detach().clone() for parameter in models.parameters()]


def test_parts_are_trained_by_parameter_trainers_too() -> None:
    through = trained_in_parts(lambda m: ParameterTrainer(dict(m.named_parameters()), "torch.SGD", {"lr": 0.1}))
    plain = trained_in_parts(lambda m: torch.optim.SGD(m.parameters(), lr=0.1))
    for one, other in zip(through, plain, strict=True):
        torch.testing.assert_close(one, other)
