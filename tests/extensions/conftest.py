"""What the tests of the extensions share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from loop_stand_ins import CountingUpdater, ListOfSnapshots

from ostinato.loop import report


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a trainer without a folder of its own writes to ./result


class ReportingUpdater(CountingUpdater):
    """Counts, and reports losses that are a function of the iteration."""

    batch_read_time = 0.25
    batch_time = 0.5

    def __init__(self, non_finite_at: int | None = None) -> None:
        super().__init__()
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


@pytest.fixture(scope="session")
def reporting_updater() -> type[ReportingUpdater]:
    return ReportingUpdater


@pytest.fixture(scope="session")
def saves() -> type[ListOfSnapshots]:
    return ListOfSnapshots
