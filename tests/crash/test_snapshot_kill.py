"""Runs that are killed at random file operations of their saves, again and again, and always go on.

Properties 2 and 11 of the loop: on the history that leads to the end every trigger fires exactly once per boundary,
never more states stay than were asked for, and never none once a save has succeeded.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_stand_ins import CountingUpdater

from ostinato.extensions.save import Snapshot
from ostinato.loop import Extension, Trainer
from ostinato.runs import RunFolder
from ostinato.runs.atomic import set_hook


class _Notes(Extension):
    """Writes to a file, line by line, what happens in a process that may be killed at any moment."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, **facts: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(facts) + "\n")

    def initialize(self, trainer: Any) -> None:
        self.add(starts_from=trainer.updater.state.iteration)

    def __call__(self, trainer: Any) -> None: ...

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def _train(out: Path, notes: _Notes, plan: dict[str, Any]) -> None:
    trainer = Trainer(CountingUpdater(plan["updates_per_epoch"]), (plan["total"], "iteration"), out=out)
    for name, trigger in plan["triggers"].items():
        trainer.extend(
            lambda t, name=name: notes.add(fired=name, iteration=t.updater.state.iteration), name=name, trigger=trigger
        )
    trainer.extend(notes)
    trainer.extend(
        Snapshot(
            max_size=plan["max_size"],
            every=(plan["snapshot_period"], "iteration"),
            on_result=lambda result: notes.add(saved=result.iteration),
        )
    )
    trainer.run()


def _train_until_killed(out: Path, notes: _Notes, plan: dict[str, Any], operation: int) -> bool:
    """In a process of its own, killed at its so many-th file operation. False: it came to its end before."""
    child = os.fork()
    if child == 0:
        seen = 0

        def kill(_moment: str, _operation: str, _path: Path) -> None:
            nonlocal seen
            seen += 1
            if seen == operation:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            set_hook(kill)
            _train(out, notes, plan)
        except BaseException:
            os._exit(99)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or status == 0
    return os.WIFSIGNALED(status)


@pytest.fixture(autouse=True)
def _no_hook_left() -> Iterator[None]:
    yield
    set_hook(None)


_PLANS = st.fixed_dictionaries(
    {
        "updates_per_epoch": st.integers(1, 6),
        "total": st.integers(3, 14),
        "snapshot_period": st.integers(1, 5),
        "max_size": st.integers(1, 3),
        "triggers": st.fixed_dictionaries(
            {
                "each": st.just((1, "iteration")),
                "some": st.integers(1, 7).map(lambda period: (period, "iteration")),
                "epoch": st.sampled_from([(1, "epoch"), (2, "epoch"), ("0.5", "epoch")]).map(
                    lambda pair: (float(pair[0]), pair[1])
                ),
            }
        ),
    }
)


@settings(max_examples=25)
@given(_PLANS, st.lists(st.integers(1, 160), max_size=4))
def test_whatever_is_killed_when_every_boundary_fires_once_and_no_state_is_lost(
    tmp_path_factory: pytest.TempPathFactory, plan: dict[str, Any], kills: list[int]
) -> None:
    place = tmp_path_factory.mktemp("kills")
    out = place / "run"
    notes = _Notes(place / "notes")
    for operation in kills:
        _train_until_killed(out, notes, plan, operation)
        told = [fact["saved"] for fact in (notes.read() if notes.path.exists() else []) if "saved" in fact]
        whole = [name.iteration for name in RunFolder(out).names()]
        assert len(whole) <= plan["max_size"] + 1  # the newest is there before the oldest goes
        assert all(not damage for damage in RunFolder(out).verify().values())
        assert not told or whole[-1] >= max(told)
    _train(out, notes, plan)
    assert 1 <= len(RunFolder(out).names()) <= plan["max_size"]

    processes: list[list[dict[str, Any]]] = []
    for fact in notes.read():
        if "starts_from" in fact:
            processes.append([])
        processes[-1].append(fact)
    starts = [process[0]["starts_from"] for process in processes]
    line: dict[str, list[int]] = {name: [] for name in plan["triggers"]}
    for process, until in zip(processes, [*starts[1:], plan["total"]], strict=True):
        for fact in process:
            if "fired" in fact and fact["iteration"] <= until:
                line[fact["fired"]].append(fact["iteration"])
    straight = _Notes(place / "straight")
    _train(place / "straight_run", straight, plan)
    expected = {
        name: [fact["iteration"] for fact in straight.read() if fact.get("fired") == name] for name in plan["triggers"]
    }
    assert line == expected


def test_each_damaged_newest_state_leads_to_the_one_before(tmp_path: Path) -> None:
    plan = {
        "updates_per_epoch": 3,
        "total": 12,
        "snapshot_period": 3,
        "max_size": 3,
        "triggers": {"each": (1, "iteration")},
    }
    _train(tmp_path / "run", _Notes(tmp_path / "notes"), plan)
    assert [name.iteration for name in RunFolder(tmp_path / "run").names()] == [6, 9, 12]
    for newest, before in ((12, 9), (9, 6)):
        path = tmp_path / "run" / "generations" / f"{newest:08d}" / "state.json"
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        copy = tmp_path / f"copy{newest}"
        shutil.copytree(tmp_path / "run", copy)
        notes = _Notes(tmp_path / f"notes{newest}")
        _train(copy, notes, plan)
        assert notes.read()[0] == {"starts_from": before}
        assert [name.iteration for name in RunFolder(copy).names()][-1] == 12
