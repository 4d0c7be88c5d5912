"""What the tests of the loop share."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ostinato.loop import Extension, UpdaterState


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a trainer without a folder of its own writes to ./result


class CountingUpdater:
    """An updater that only counts."""

    def __init__(self, updates_per_epoch: int | None = None) -> None:
        self.state = UpdaterState(updates_per_epoch=updates_per_epoch)

    def update(self) -> None:
        self.state.advance()

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state.load_state_dict(state["state"])


class ListOfSnapshots(Extension):
    """Saves into a list, through JSON as a file would, and restores from its newest entry."""

    priority = -100
    name = "snapshots"

    def __init__(self, kept: list[dict[str, Any]]) -> None:
        self.kept = kept

    def restore(self, trainer: Any) -> None:
        if self.kept:
            trainer.load_state_dict(self.kept[-1])

    def __call__(self, trainer: Any) -> None:
        self.kept.append(json.loads(json.dumps(trainer.state_dict())))


def stand_in(**counters: Any) -> SimpleNamespace:
    """A trainer of a few lines, for triggers: counters by name, ``elapsed_time`` among them."""
    elapsed = counters.pop("elapsed_time", 0.0)
    updater = SimpleNamespace(state=UpdaterState(**counters))
    return SimpleNamespace(updater=updater, elapsed_time=elapsed, observation={})


@pytest.fixture(scope="session")
def counting_updater() -> type[CountingUpdater]:
    return CountingUpdater


@pytest.fixture(scope="session")
def list_of_snapshots() -> type[ListOfSnapshots]:
    return ListOfSnapshots


@pytest.fixture(scope="session", name="stand_in")
def _stand_in() -> Any:
    return stand_in
