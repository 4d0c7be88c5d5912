"""What the tests of the extensions share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato.loop import Extension, UpdaterState, report


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a trainer without a folder of its own writes to ./result


class ReportingUpdater:
    """Counts, and reports losses that are a function of the iteration."""

    batch_read_time = 0.25
    batch_time = 0.5

    def __init__(self, non_finite_at: int | None = None) -> None:
        self.state = UpdaterState()
        self.non_finite_at = non_finite_at

    def update(self) -> None:
        a, b = (torch.tensor(1.0 / (self.state.iteration + number)) for number in (3, 7))
        if self.state.iteration + 1 == self.non_finite_at:
            b = torch.tensor(float("nan"))
        report("loss/total", a + b)
        report("loss/a", a)
        report("loss/b", b)
        report("loss/b/ssim", b)
        self.state.advance(samples=32)

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state.load_state_dict(state["state"])


class Saves(Extension):
    """Saves into a list and restores from its newest entry."""

    priority = -100
    name = "saves"

    def __init__(self, kept: list[dict[str, Any]]) -> None:
        self.kept = kept

    def restore(self, trainer: Any) -> None:
        if self.kept:
            trainer.load_state_dict(self.kept[-1])

    def __call__(self, trainer: Any) -> None:
        self.kept.append(trainer.state_dict())


@pytest.fixture(scope="session")
def reporting_updater() -> type[ReportingUpdater]:
    return ReportingUpdater


@pytest.fixture(scope="session")
def saves() -> type[Saves]:
    return Saves
