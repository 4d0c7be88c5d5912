from __future__ import annotations

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
