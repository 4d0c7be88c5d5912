from __future__ import annotations

import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater, ListOfSnapshots

from ostinato.errors import MissingPackageError
from ostinato.extensions.tracker_writer import TrackerWriter
from ostinato.extensions.wandb_tracker import WandbTracker
from ostinato.loop import Trainer, report


class Run:
    """The part of a run of wandb 0.31 that is used, with its signatures."""

    def __init__(self, id: str | None) -> None:
        self.id = id or "made-up-id"
        self.metrics: list[tuple[str, Any]] = []
        self.logged: list[dict[str, Any]] = []
        self.exit_code: int | None = None

    def define_metric(
        self,
        name: str,
        step_metric: str | None = None,
        step_sync: bool | None = None,
        hidden: bool | None = None,
        summary: str | None = None,
        overwrite: bool | None = None,
    ) -> None:
        self.metrics.append((name, step_metric))

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        assert step is None
        self.logged.append(data)

    def finish(self, exit_code: int | None = None) -> None:
        self.exit_code = exit_code


class Wandb(ModuleType):
    """Stands in for the package."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.arguments: list[dict[str, Any]] = []
        self.runs: list[Run] = []

    def init(
        self,
        entity: str | None = None,
        project: str | None = None,
        dir: str | None = None,
        id: str | None = None,
        name: str | None = None,
        notes: str | None = None,
        tags: Any = None,
        config: dict[str, Any] | None = None,
        mode: str | None = None,
        resume: bool | str | None = None,
    ) -> Run:
        assert dir is not None
        assert Path(dir).is_dir()
        given = {"project": project, "dir": dir, "id": id, "name": name, "config": config, "resume": resume}
        self.arguments.append({**given, "entity": entity, "mode": mode})
        self.runs.append(Run(id))
        return self.runs[-1]


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Wandb:
    module = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


class Reporting(CountingUpdater):
    def update(self) -> None:
        super().update()
        report("loss", torch.tensor(1 / self.state.iteration))
        report("nan", math.nan)


def run(out: Path, stop: int, tracker: WandbTracker, kept: list[Any]) -> None:
    trainer = Trainer(Reporting(2), (stop, "iteration"), out=out, clock=lambda: 0.0)
    trainer.extend(TrackerWriter(tracker))
    trainer.extend(ListOfSnapshots(kept), trigger=(2, "iteration"))
    trainer.run()


def test_a_run_is_started_in_the_runs_folder_and_drawn_over_iterations(wandb: Wandb, tmp_path: Path) -> None:
    run(tmp_path / "my_run", 2, WandbTracker("faces", config={"lr": 0.1}, entity="us", mode="offline"), [])
    assert wandb.arguments == [
        {
            "project": "faces",
            "dir": str(tmp_path / "my_run"),
            "id": None,
            "name": "my_run",
            "config": {"lr": 0.1},
            "resume": "allow",
            "entity": "us",
            "mode": "offline",
        }
    ]
    (service,) = wandb.runs
    assert service.metrics == [("iteration", None), ("*", "iteration")]
    assert [point["iteration"] for point in service.logged] == [1, 2]
    assert service.logged[1]["loss"] == 0.5
    assert service.logged[1]["epoch"] == 1
    assert math.isnan(service.logged[1]["nan"])
    assert service.exit_code == 0


def test_a_resumed_training_goes_on_in_the_same_run(wandb: Wandb, tmp_path: Path) -> None:
    kept: list[Any] = []
    run(tmp_path, 3, WandbTracker("faces"), kept)
    run(tmp_path, 4, WandbTracker("faces"), kept)
    assert [arguments["id"] for arguments in wandb.arguments] == [None, "made-up-id"]
    assert [point["iteration"] for point in wandb.runs[1].logged] == [3, 4]


def test_a_run_that_is_named_wins_over_the_saved_one(wandb: Wandb, tmp_path: Path) -> None:
    kept: list[Any] = []
    run(tmp_path, 2, WandbTracker("faces"), kept)
    run(tmp_path, 4, WandbTracker("faces", id="mine"), kept)
    assert wandb.arguments[1]["id"] == "mine"


def test_a_training_that_failed_is_marked(wandb: Wandb, tmp_path: Path) -> None:
    trainer = Trainer(Reporting(), (4, "iteration"), out=tmp_path)
    trainer.extend(TrackerWriter(WandbTracker("faces")))
    trainer.extend(lambda trainer: 1 / 0, name="broken", trigger=(2, "iteration"))
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    assert wandb.runs[0].exit_code == 1


def test_without_the_package_the_way_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingPackageError, match=r"WandbTracker needs the package wandb.*pip install wandb"):
        run(tmp_path, 2, WandbTracker("faces"), [])


def test_bad_arguments_and_states_are_refused() -> None:
    with pytest.raises(TypeError, match="project must be a text, not 5"):
        WandbTracker(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="project is empty"):
        WandbTracker("")
    with pytest.raises(ValueError, match="format 9"):
        WandbTracker("faces").load_state_dict({"format": 9})
