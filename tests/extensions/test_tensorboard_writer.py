from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

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


def test_a_full_disk_costs_points_and_one_warning(reporting_updater, tmp_path, monkeypatch, caplog) -> None:
    writer = TensorBoardWriter(tmp_path / "s", flush_trigger=(1, "iteration"))
    trainer = Trainer(reporting_updater(), (6, "iteration"), extensions=[writer])
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        if 2 <= trainer.updater.state.iteration <= 4:
            if len(data) > 20:
                return real(descriptor, data[:20])  # a part still fits
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    monkeypatch.setattr("ostinato.extensions.event_file.os.write", write)
    with caplog.at_level(logging.WARNING, "ostinato"):
        trainer.run()
    assert [step for step, _ in scalars(writer.folder, "loss/a")] == [1, 5, 6]
    assert len(caplog.records) == 1
    assert "tensorboard: points cannot be written: No space left on device." in caplog.text


def test_a_folder_with_any_name_is_written(reporting_updater, tmp_path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n"))
    Trainer(reporting_updater(), (3, "iteration"), extensions=[TensorBoardWriter(folder)]).run()
    folder.rename(tmp_path / "plain")  # for TensorBoard's reader
    assert [step for step, _ in scalars(tmp_path / "plain", "loss/a")] == [1, 2, 3]


def test_a_folder_that_cannot_be_made_costs_a_warning(reporting_updater, tmp_path, caplog) -> None:
    (tmp_path / "file").write_text("")
    writer = TensorBoardWriter(tmp_path / "file" / "s", flush_trigger=(1, "iteration"))
    with caplog.at_level(logging.WARNING, "ostinato"):
        Trainer(reporting_updater(), (3, "iteration"), extensions=[writer]).run()
    assert len(caplog.records) == 1
