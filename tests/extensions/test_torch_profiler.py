from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater, ListOfSnapshots

from ostinato.extensions.torch_profiler import TorchProfiler
from ostinato.loop import Trainer


class Profile:
    """Stands in for ``torch.profiler.profile``: its trace is the list of the iterations that it was told to record."""

    started: list[Profile] = []  # noqa: RUF012

    def __init__(self, activities: Any, schedule: Any, **settings: Any) -> None:
        self.schedule, self.settings = schedule, settings
        self.steps = 0
        self.is_stopped = False
        Profile.started.append(self)

    def start(self) -> None:
        pass

    def step(self) -> None:
        self.steps += 1

    def stop(self) -> None:
        self.is_stopped = True

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text(json.dumps({"steps": self.steps}))


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch) -> type[Profile]:
    Profile.started = []
    monkeypatch.setattr(torch.profiler, "profile", Profile)
    return Profile


def run(out: Path, stop: int, kept: list[Any] | None = None, save_every: int = 1, **settings: Any) -> TorchProfiler:
    profiler = TorchProfiler(**settings)
    trainer = Trainer(CountingUpdater(), (stop, "iteration"), out=out, extensions=[profiler])
    if kept is not None:
        trainer.extend(ListOfSnapshots(kept), trigger=(save_every, "iteration"))
    trainer.run()
    assert trainer.status == "finished"
    return profiler


def traces(out: Path) -> list[str]:
    folder = out / "profile"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_real_window_is_written_as_a_chrome_trace_of_the_right_iterations(tmp_path: Path) -> None:
    class Named(CountingUpdater):
        def update(self) -> None:
            with torch.profiler.record_function(f"update number {self.state.iteration + 1}"):
                super().update()

    trainer = Trainer(Named(), (6, "iteration"), out=tmp_path, extensions=[TorchProfiler(2, 1, 2)])
    trainer.run()
    assert traces(tmp_path) == ["trace_1_4-5.json"]
    text = (tmp_path / "profile" / "trace_1_4-5.json").read_text()
    assert "traceEvents" in json.loads(text)
    assert set(re.findall(r"update number \d+", text)) == {"update number 4", "update number 5"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"wait": 3, "warmup": 1, "active": 2}, ["trace_1_5-6.json"]),
        ({"wait": 0, "warmup": 0, "active": 1}, ["trace_1_1-1.json"]),
        (
            {"wait": 1, "warmup": 0, "active": 2, "repeat": 3},
            ["trace_1_2-3.json", "trace_2_5-6.json", "trace_3_8-9.json"],
        ),
        ({"wait": 0, "warmup": 1, "active": 2, "repeat": 2}, ["trace_1_2-3.json", "trace_2_5-6.json"]),
        ({"repeat": 0, "wait": 0}, []),
        ({"wait": 100}, []),
    ],
)
def test_cycles_follow_the_iterations(tmp_path: Path, profile, settings: dict[str, int], expected: list[str]) -> None:
    run(tmp_path, 12, **settings)
    assert traces(tmp_path) == expected
    assert all(found.is_stopped for found in profile.started)


def test_off_it_starts_nothing(tmp_path: Path, profile) -> None:
    run(tmp_path, 12, wait=50)
    assert profile.started == []


@pytest.mark.parametrize(("cut", "save_every"), [(2, 1), (5, 1), (6, 1), (6, 3), (7, 1), (7, 2), (9, 4), (9, 6)])
def test_a_recorded_window_is_not_recorded_again_and_a_cut_off_one_is(
    tmp_path: Path, profile, cut: int, save_every: int
) -> None:
    window = {"wait": 3, "warmup": 1, "active": 2}
    kept: list[Any] = []
    run(tmp_path, cut, kept, save_every, **window)
    run(tmp_path, 20, kept, save_every, **window)
    whole = [name for name in traces(tmp_path) if name != "trace_1_5-5.json"]
    assert len(whole) == 1
    if cut == 5:
        assert whole == ["trace_1_7-8.json"]  # it goes on from iteration 5 with a warm-up of its own


def test_a_state_saved_in_the_iteration_that_ends_a_window_knows_of_it(tmp_path: Path, profile) -> None:
    kept: list[Any] = []
    run(tmp_path, 7, kept, wait=3, warmup=1, active=2)
    recorded = [state["extensions"]["torch_profiler"]["recorded"] for state in kept]
    assert recorded == [0, 0, 0, 0, 0, 1, 1]


def test_a_window_that_the_end_of_the_run_cuts_off_is_written_as_far_as_it_came(tmp_path: Path, profile) -> None:
    profiler = run(tmp_path, 6, wait=3, warmup=1, active=10)
    assert traces(tmp_path) == ["trace_1_5-6.json"]
    assert profiler.state_dict() == {"format": 1, "recorded": 0}


def test_a_fresh_run_replaces_the_trace_of_an_older_one(tmp_path: Path, profile) -> None:
    for _ in range(2):
        run(tmp_path, 6, wait=3, warmup=1, active=2)
    assert traces(tmp_path) == ["trace_1_5-6.json"]
    assert len(profile.started) == 2


@pytest.mark.parametrize("method", ["start", "step", "stop", "export_chrome_trace"])
def test_whatever_goes_wrong_training_goes_on(tmp_path: Path, profile, monkeypatch, caplog, method: str) -> None:
    def fail(self: Any, *arguments: Any) -> None:
        raise RuntimeError("the profiler is busy")

    monkeypatch.setattr(Profile, method, fail)
    with caplog.at_level(logging.WARNING):
        run(tmp_path, 12, wait=3, warmup=1, active=2, repeat=2)
    assert [record.getMessage() for record in caplog.records] == [
        "TorchProfiler: RuntimeError: the profiler is busy. Training goes on without the profiler."
    ]
    assert [name for name in traces(tmp_path) if name.startswith("trace")] == []


def test_ranks_write_files_of_their_own(tmp_path: Path, profile) -> None:
    profiler = TorchProfiler(0, 0, 1)
    trainer: Any = SimpleNamespace(
        updater=CountingUpdater(), out=tmp_path, group=SimpleNamespace(rank=3, size=4), status="running"
    )
    profiler.initialize(trainer)
    trainer.updater.update()
    profiler(trainer)
    assert traces(tmp_path) == ["rank3_trace_1_1-1.json"]


def test_settings_reach_the_profiler(tmp_path: Path, profile) -> None:
    run(tmp_path, 2, wait=0, folder=tmp_path / "elsewhere", with_stack=True)
    assert profile.started[0].settings == {"record_shapes": False, "profile_memory": False, "with_stack": True}
    assert traces(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"wait": -1}, ValueError),
        ({"warmup": 0.5}, ValueError),
        ({"active": 0}, ValueError),
        ({"active": "3"}, TypeError),
        ({"repeat": True}, TypeError),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    name = next(iter(arguments))
    with pytest.raises(error, match=f"TorchProfiler: {name} must be"):
        TorchProfiler(**arguments)


def test_a_state_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 2"):
        TorchProfiler().load_state_dict({"format": 2})
