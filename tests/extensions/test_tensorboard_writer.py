from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ostinato.extensions import TensorBoardWriter
from ostinato.loop import Trainer


def scalars(folder, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, round(event.value, 6)) for event in events.Scalars(name)]


def test_every_iteration_is_a_point(reporting_updater, tmp_path) -> None:
    writer = TensorBoardWriter(tmp_path / "session_0001", flush_trigger=(2, "iteration"))
    assert not writer.folder.exists()
    Trainer(reporting_updater(), (3, "iteration"), extensions=[writer]).run()
    assert scalars(writer.folder, "loss/a") == [(1, round(1 / 3, 6)), (2, 0.25), (3, 0.2)]


def test_points_of_a_history_that_was_left_are_forgotten(reporting_updater, tmp_path) -> None:
    Trainer(reporting_updater(), (5, "iteration"), extensions=[TensorBoardWriter(tmp_path / "s")]).run()
    resumed = reporting_updater()
    resumed.state.iteration = 2
    Trainer(resumed, (4, "iteration"), extensions=[TensorBoardWriter(tmp_path / "s")]).run()
    assert [step for step, _ in scalars(tmp_path / "s", "loss/a")] == [1, 2, 3, 4]


# TensorBoard's own thread dies of it, loudly.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_disk_costs_points_and_one_warning(reporting_updater, tmp_path, monkeypatch, caplog) -> None:
    from tensorboard.compat.tensorflow_stub.io.gfile import LocalFileSystem

    writer = TensorBoardWriter(tmp_path / "s", flush_trigger=(1, "iteration"))
    trainer = Trainer(reporting_updater(), (6, "iteration"), extensions=[writer])
    real = LocalFileSystem._write

    def write(self: Any, *arguments: Any) -> Any:
        if 2 <= trainer.updater.state.iteration <= 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, *arguments)

    monkeypatch.setattr(LocalFileSystem, "_write", write)
    with caplog.at_level(logging.WARNING, "ostinato"):
        trainer.run()
    assert {1, 5, 6} <= {step for step, _ in scalars(writer.folder, "loss/a")}
    assert len(caplog.records) == 1
    assert "TensorBoard events cannot be written (No space left on device)" in caplog.text


def test_a_folder_that_tensorboard_cannot_spell_costs_a_warning(reporting_updater, tmp_path, caplog) -> None:
    writer = TensorBoardWriter(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")), flush_trigger=(1, "iteration"))
    with caplog.at_level(logging.WARNING, "ostinato"):
        Trainer(reporting_updater(), (3, "iteration"), extensions=[writer]).run()
    assert len(caplog.records) == 1
    assert "Training goes on without them" in caplog.text
