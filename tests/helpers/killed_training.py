"""A small training that kills itself where it is told to, for tests that start it again."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from ostinato.extensions import Snapshot, StandardEvaluator
from ostinato.loop import Part, PartsUpdater, Trainer, Turn, seed_random_state

SAMPLES, BATCH = 22, 4
LENGTH = 6  # batches in a pass

TRIGGERS: dict[str, Any] = {
    "each": (1, "iteration"),
    "five": (5, "iteration"),
    "epoch": (1, "epoch"),
    "half": (0.5, "epoch"),
    "two": (2, "epoch"),
}


@dataclass(frozen=True)
class Plan:
    """What one process does."""

    folder: Path
    """The run folder; beside it lies what the processes note."""
    process: int = 0
    """The number of the process."""
    total: int = 26
    """The iteration at which the run ends."""
    order: str = "global"
    """Where the order of the samples comes from: the ``global`` generator, the loader's ``own``, or each ``epoch``."""
    evaluate_every: int | None = None
    """Iterations between evaluations."""
    kill: tuple[int, str] | None = None
    """How many updates after its start the process is killed, before the run ends at the latest, and where: between two
    turns of its ``update``, before the ``ordinary`` extensions have run, in the ``late`` ones while a save may be under
    way, or when all is ``settled``."""

    @property
    def notes(self) -> Path:
        """The file of notes."""
        return self.folder.with_suffix(".jsonl")


class Numbered(Dataset[tuple[int, Tensor]]):
    """Samples that say which ones they are."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        return index, torch.tensor([index / SAMPLES, (index * index) % 7 / 7])


class _Notes:
    """Lines that stay when the process is killed right after them."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __call__(self, **fields: Any) -> None:
        os.write(self._descriptor, (json.dumps(fields) + "\n").encode())


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Killer:
    """Knows when the process is to be killed."""

    def __init__(self, plan: Plan, note: _Notes) -> None:
        self._plan, self._note = plan, note
        self._at = 0

    def initialize(self, trainer: Trainer) -> None:
        start = trainer.updater.state.iteration
        self._note(start=start)
        if self._plan.kill is not None:
            self._at = min(start + self._plan.kill[0], self._plan.total - 1)

    def is_due(self, iteration: int, where: str) -> bool:
        return self._plan.kill is not None and (iteration, where) == (self._at, self._plan.kill[1])

    def __call__(self, trainer: Trainer) -> None: ...


def _loader(order: str) -> DataLoader[Any]:
    data = Numbered()
    if order == "epoch":
        return DataLoader(data, BATCH, sampler=DistributedSampler(data, 1, 0, seed=5))
    generator = torch.Generator().manual_seed(4) if order == "own" else None
    return DataLoader(data, BATCH, shuffle=True, generator=generator)


def _updater(plan: Plan, note: _Notes, killer: _Killer) -> PartsUpdater:
    # Once something is saved, another seed in every process: all that matters has to come from the saved state.
    is_saved = any((plan.folder / "generations").glob("[0-9]*"))
    seed_random_state(103 + plan.process if is_saved else 3)
    generator = nn.Sequential(nn.Linear(2, 6), nn.Dropout(0.3), nn.Linear(6, 2))
    discriminator = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 1))
    optimizers = {
        "generator": torch.optim.Adam(generator.parameters(), lr=0.01),
        "discriminator": torch.optim.SGD(discriminator.parameters(), lr=0.02, momentum=0.9),
    }

    def generator_loss(batch: Any, turn: Turn) -> Tensor:
        iteration = turn.state.iteration + 1
        note(iteration=iteration, samples=batch[0].tolist())
        if killer.is_due(iteration, "update"):
            _die()
        return discriminator(turn["fake"]).square().mean()

    def discriminator_loss(batch: Any, turn: Turn) -> Tensor:
        return discriminator(batch[1]).mean() - discriminator(turn.detached("fake")).tanh().mean()

    return PartsUpdater(
        {"generator": generator, "discriminator": discriminator},
        optimizers,
        _loader(plan.order),
        [
            Part("discriminator", discriminator_loss, start=4, every=2, clip=0.5),
            Part("generator", generator_loss),
        ],
        shared={"fake": lambda batch, turn: generator(batch[1])},
        schedulers={
            "generator": (torch.optim.lr_scheduler.StepLR(optimizers["generator"], 4, 0.7), "iteration"),
            "discriminator": (torch.optim.lr_scheduler.ExponentialLR(optimizers["discriminator"], 0.9), "epoch"),
        },
    )


def train(placement: Any, meeting: Path, plan: Plan) -> dict[str, Any]:
    """Train as planned; the final state of the updater by path, tensors as bytes. For ``run_on_ranks`` with one rank
    and without a group."""
    note = _Notes(plan.notes)
    killer = _Killer(plan, note)
    updater = _updater(plan, note, killer)
    snapshot = Snapshot(every=(3, "iteration"))
    trainer = Trainer(updater, (plan.total, "iteration"), plan.folder)
    trainer.extend(snapshot)
    trainer.extend(killer, "killer", trigger=lambda trainer: False)
    if plan.evaluate_every is not None:
        trainer.extend(_evaluator(updater), trigger=(plan.evaluate_every, "iteration"))
    for name, trigger in TRIGGERS.items():
        trainer.extend(
            lambda trainer, name=name: note(fired=name, iteration=trainer.updater.state.iteration),
            name,
            trigger=trigger,
        )

    def kill(where: str) -> Any:
        def extension(trainer: Trainer) -> None:
            if killer.is_due(trainer.updater.state.iteration, where):
                if where == "settled":
                    snapshot.settle()
                _die()

        return extension

    trainer.extend(kill("ordinary"), "kill_ordinary", priority=200)
    trainer.extend(kill("late"), "kill_late", priority=-1000)
    trainer.extend(kill("settled"), "kill_settled", priority=-1000)
    trainer.run()
    return dict(_leaves(updater.state_dict(), ""))


def _evaluator(updater: PartsUpdater) -> StandardEvaluator:
    def measure(batch: Any) -> Tensor:
        fake = updater.models["generator"](batch[1] + torch.rand(()))
        return updater.models["discriminator"](fake).mean()

    return StandardEvaluator(updater.models, DataLoader(Numbered(), 5, shuffle=True), measure, prefix="validation/")


def _leaves(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _leaves(part, f"{path}/{name}")
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _leaves(part, f"{path}/{number}")
    elif isinstance(value, Tensor) or hasattr(value, "tobytes"):
        yield path, torch.as_tensor(value).numpy().tobytes()
    else:
        yield path, value
