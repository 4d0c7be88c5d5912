"""What only writes is registered on every rank, and written once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater
from rank_processes import run_on_ranks

from ostinato.extensions import (
    LogReport,
    MetricsWriter,
    PrintReport,
    Progress,
    ProgressBar,
    SpeedMonitor,
    TensorBoardWriter,
    TextLog,
)
from ostinato.loop import Trainer, report


class Reporting(CountingUpdater):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def update(self) -> None:
        report("loss", torch.tensor(float(self.state.iteration + 10 * self.rank)))
        super().update()


def train(group: Any, folder: str, ranks: Any) -> list[str]:
    said: list[str] = []
    trainer = Trainer(Reporting(group.rank), (6, "iteration"), out=folder, group=group)
    trainer.extend(SpeedMonitor((3, "iteration")))
    for extension in (
        MetricsWriter(Path(folder) / "logs" / "session_0001"),
        TensorBoardWriter(Path(folder) / "logs" / "session_0001"),
        LogReport(["loss"], (3, "iteration")),
        PrintReport(["iteration", "loss"], out=said.append),
        TextLog((3, "iteration"), said.append),
        Progress(said.append),
        ProgressBar(None, 3, write=said.append),
    ):
        trainer.extend(extension, ranks=ranks)
    trainer.run()
    return said


@pytest.mark.parametrize("ranks", ["all", 0])
def test_rank_0_alone_writes_and_speaks(tmp_path: Path, ranks: Any) -> None:
    first, second = run_on_ranks(train, str(tmp_path / "run"), ranks, folder=tmp_path)
    assert (first.error, second.error) == (None, None)
    assert second.value == []
    assert [line.split()[0] for line in first.value if line[0].isdigit()] == ["3", "6"]
    assert sum(line.startswith("iter: ") for line in first.value) == 2
    assert [record["loss"] for record in json.loads((tmp_path / "run" / "log").read_text())] == [1.0, 4.0]
    lines = (tmp_path / "run" / "logs" / "session_0001" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert len(list((tmp_path / "run" / "logs" / "session_0001").glob("events*"))) == 1
