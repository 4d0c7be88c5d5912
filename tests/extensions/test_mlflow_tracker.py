from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater, ListOfSnapshots

from ostinato.errors import MissingPackageError
from ostinato.extensions import mlflow_tracker
from ostinato.extensions.mlflow_tracker import MlflowTracker
from ostinato.extensions.tracker_writer import TrackerWriter
from ostinato.loop import Trainer, report


class Metric:
    def __init__(self, key: str, value: float, timestamp: int, step: int) -> None:
        self.key, self.value, self.timestamp, self.step = key, value, timestamp, step


class Server:
    """What a tracking server remembers."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.uris: list[str | None] = []
        self.requests: list[int] = []

    def client(server) -> type:
        class MlflowClient:
            """The part of the client of mlflow 3.17 that is used, with its signatures."""

            def __init__(self, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
                server.uris.append(tracking_uri)

            def get_experiment_by_name(self, name: str) -> Any:
                number = server.experiments.get(name)
                return None if number is None else SimpleNamespace(experiment_id=number)

            def create_experiment(self, name: str, artifact_location: str | None = None, tags: Any = None) -> str:
                assert name not in server.experiments
                server.experiments[name] = f"{len(server.experiments)}"
                return server.experiments[name]

            def create_run(
                self, experiment_id: str, start_time: int | None = None, tags: Any = None, run_name: str | None = None
            ) -> Any:
                run_id = f"run{len(server.runs)}"
                server.runs[run_id] = {"experiment": experiment_id, "name": run_name, "params": {}, "metrics": []}
                server.runs[run_id]["status"] = ["RUNNING"]
                return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

            def update_run(self, run_id: str, status: str | None = None, name: str | None = None) -> None:
                server.runs[run_id]["status"].append(status)

            def log_param(self, run_id: str, key: str, value: Any, synchronous: bool | None = None) -> Any:
                server.runs[run_id]["params"][key] = value

            def log_batch(
                self,
                run_id: str,
                metrics: Sequence[Metric] = (),
                params: Any = (),
                tags: Any = (),
                synchronous: Any = None,
            ) -> None:
                server.requests.append(len(metrics))
                server.runs[run_id]["metrics"] += metrics

            def set_terminated(self, run_id: str, status: str | None = None, end_time: int | None = None) -> None:
                server.runs[run_id]["status"].append(status)

        return MlflowClient


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    modules = {name: ModuleType(name) for name in ("mlflow", "mlflow.tracking", "mlflow.entities")}
    modules["mlflow.tracking"].MlflowClient = server.client()  # type: ignore[attr-defined]
    modules["mlflow.entities"].Metric = Metric  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return server


class Reporting(CountingUpdater):
    def update(self) -> None:
        super().update()
        report("loss/ä [%]", torch.tensor(1 / self.state.iteration))


def run(out: Path, stop: int, tracker: MlflowTracker, kept: list[Any]) -> None:
    trainer = Trainer(Reporting(2), (stop, "iteration"), out=out)
    trainer.extend(TrackerWriter(tracker, None))
    trainer.extend(ListOfSnapshots(kept), trigger=(2, "iteration"))
    trainer.run()


def test_a_run_is_made_in_its_experiment_and_gets_every_number(server: Server, tmp_path: Path) -> None:
    tracker = MlflowTracker("faces", tracking_uri="http://here", params={"lr": 0.1})
    run(tmp_path / "my_run", 3, tracker, [])
    (found,) = server.runs.values()
    assert server.uris == ["http://here"]
    assert server.experiments == {"faces": "0"}
    assert (found["experiment"], found["name"], found["params"]) == ("0", "my_run", {"lr": 0.1})
    points = [(metric.key, metric.value, metric.step) for metric in found["metrics"]]
    assert points == [
        ("loss/ä ___", 1.0, 1),
        ("epoch", 0, 1),
        ("loss/ä ___", 0.5, 2),
        ("epoch", 1, 2),
        ("loss/ä ___", float(torch.tensor(1 / 3)), 3),
        ("epoch", 1, 3),
    ]
    assert all(
        isinstance(metric.timestamp, int) and metric.timestamp > 1_600_000_000_000 for metric in found["metrics"]
    )
    assert found["status"] == ["RUNNING", "FINISHED"]


def test_a_resumed_training_goes_on_in_the_same_run(server: Server, tmp_path: Path) -> None:
    kept: list[Any] = []
    run(tmp_path, 3, MlflowTracker(), kept)
    run(tmp_path, 4, MlflowTracker(), kept)
    (found,) = server.runs.values()
    assert [metric.step for metric in found["metrics"] if metric.key == "epoch"] == [1, 2, 3, 3, 4]
    assert found["status"] == ["RUNNING", "FINISHED", "RUNNING", "FINISHED"]


def test_an_experiment_that_is_there_is_used(server: Server, tmp_path: Path) -> None:
    server.experiments["faces"] = "17"
    run(tmp_path, 1, MlflowTracker("faces", run_name="first try"), [])
    (found,) = server.runs.values()
    assert (found["experiment"], found["name"]) == ("17", "first try")


def test_no_request_holds_more_than_a_server_takes(server: Server, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(mlflow_tracker, "_MOST_METRICS", 4)
    trainer = Trainer(Reporting(), (5, "iteration"), out=tmp_path, extensions=[TrackerWriter(MlflowTracker(), None)])
    trainer.run()
    assert server.requests == [4, 4, 2]


@pytest.mark.parametrize(("how", "status"), [("fail", "FAILED"), ("stop", "KILLED")])
def test_the_run_is_marked_with_its_end(server: Server, tmp_path: Path, how: str, status: str) -> None:
    trainer = Trainer(Reporting(), (4, "iteration"), out=tmp_path, extensions=[TrackerWriter(MlflowTracker())])

    def end(trainer: Any) -> None:
        if how == "fail":
            raise KeyError("broken")
        trainer.request_stop()

    trainer.extend(end, trigger=(2, "iteration"))
    if how == "fail":
        with pytest.raises(KeyError):
            trainer.run()
    else:
        trainer.run()
    assert next(iter(server.runs.values()))["status"][-1] == status


def test_without_the_package_the_way_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingPackageError, match=r"MlflowTracker needs the package mlflow.*pip install mlflow"):
        run(tmp_path, 2, MlflowTracker(), [])


def test_bad_arguments_and_states_are_refused() -> None:
    with pytest.raises(TypeError, match="experiment must be a text, not 5"):
        MlflowTracker(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="experiment is empty"):
        MlflowTracker("")
    with pytest.raises(ValueError, match="format 9"):
        MlflowTracker().load_state_dict({"format": 9})
