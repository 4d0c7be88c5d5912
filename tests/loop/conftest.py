"""What the tests of the loop share."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from loop_stand_ins import CountingUpdater, ListOfSnapshots

from ostinato.loop import UpdaterState


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a trainer without a folder of its own writes to ./result


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
