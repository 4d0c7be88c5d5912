from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater, ListOfSnapshots
from second_rank import second_rank

from ostinato.extensions.tracker import Point, RunInfo
from ostinato.extensions.tracker_writer import TrackerWriter
from ostinato.loop import Extension, Trainer, report


class Notebook:
    """A tracker that writes into lists."""

    label = "notebook"

    def __init__(self) -> None:
        self.opened: list[tuple[RunInfo, int]] = []
        self.batches: list[list[Point]] = []
        self.closed: list[str] = []

    def open(self, run: RunInfo, iteration: int) -> None:
        self.opened.append((run, iteration))

    def write(self, points: Sequence[Point]) -> None:
        self.batches.append(list(points))

    def close(self, status: str) -> None:
        self.closed.append(status)

    @property
    def points(self) -> list[Point]:
        return [point for batch in self.batches for point in batch]


class Remembering(Notebook):
    """One that has a number at a service."""

    number = 0

    def state_dict(self) -> dict[str, Any]:
        return {"number": 7}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.number = state["number"]


def test_every_iteration_is_a_point_with_the_numbers_in_their_order(tmp_path: Path, reporting_updater) -> None:
    tracker = Notebook()
    writer = TrackerWriter(tracker, (2, "iteration"))
    trainer = Trainer(reporting_updater(), (5, "iteration"), out=tmp_path / "my_run", clock=lambda: 3.0)
    trainer.extend(writer)
    assert trainer.name_of(writer) == "notebook"
    trainer.run()
    assert tracker.opened == [(RunInfo("my_run", tmp_path / "my_run"), 0)]
    assert [len(batch) for batch in tracker.batches] == [0, 2, 2, 1]
    assert [point.iteration for point in tracker.points] == [1, 2, 3, 4, 5]
    first = tracker.points[0]
    assert list(first.values) == ["loss/total", "loss/a", "loss/b", "loss/b/ssim"]
    assert first.values["loss/a"] == float(torch.tensor(1 / 3))
    assert (first.epoch, first.elapsed_time) == (0, 0.0)
    assert tracker.closed == ["finished"]


def test_nothing_is_opened_before_the_run_or_on_another_rank(tmp_path: Path) -> None:
    tracker = Notebook()
    writer = TrackerWriter(tracker)
    trainer = second_rank(tmp_path)
    writer.initialize(trainer)
    writer(trainer)
    assert writer.state_dict() == {}
    writer.finalize(trainer)
    assert (tracker.opened, tracker.batches, tracker.closed) == ([], [], [])


def test_what_is_no_number_is_left_out_with_one_warning_and_a_pair_is_its_value(caplog) -> None:
    tracker = Notebook()
    trainer = Trainer(CountingUpdater(), (3, "iteration"), extensions=[TrackerWriter(tracker)])

    def numbers(trainer: Any) -> None:
        report("pair", (torch.tensor(2.0), 100))
        report("text", "hello")
        report("pair of words", ("a", "b"))

    trainer.extend(numbers, priority=300)
    with caplog.at_level(logging.WARNING):
        trainer.run()
    assert [dict(point.values) for point in tracker.points] == [{"pair": 2.0}] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "notebook: 'text' is left out, str is not a number",
        "notebook: 'pair of words' is left out, str is not a number",
    ]


def test_a_resumed_run_opens_at_its_iteration_with_what_the_tracker_remembered(reporting_updater) -> None:
    kept: list[dict[str, Any]] = []
    for tracker, stop in ((Remembering(), 5), (Remembering(), 6)):
        trainer = Trainer(reporting_updater(), (stop, "iteration"), extensions=[TrackerWriter(tracker)])
        trainer.extend(ListOfSnapshots(kept), trigger=(3, "iteration"))
        trainer.run()
    assert (tracker.opened[0][1], tracker.number) == (3, 7)
    assert [point.iteration for point in tracker.points] == [4, 5, 6]


def test_points_are_handed_over_before_a_state_is_saved(reporting_updater) -> None:
    tracker = Notebook()
    seen: list[int] = []

    class Saving(Extension):
        priority = -100

        def __call__(self, trainer: Any) -> None:
            trainer.state_dict()
            seen.append(tracker.points[-1].iteration)

    trainer = Trainer(reporting_updater(), (3, "iteration"), extensions=[TrackerWriter(tracker, None), Saving()])
    trainer.run()
    assert seen == [1, 2, 3]


def test_a_tracker_that_cannot_write_costs_one_warning_and_these_points(reporting_updater, caplog) -> None:
    class Down(Notebook):
        def write(self, points: Sequence[Point]) -> None:
            if points and 2 <= points[0].iteration <= 4:
                raise ConnectionError("no route to the service")
            super().write(points)

    tracker = Down()
    writer = TrackerWriter(tracker, (1, "iteration"))
    with caplog.at_level(logging.WARNING):
        Trainer(reporting_updater(), (6, "iteration"), extensions=[writer]).run()
    assert [point.iteration for point in tracker.points] == [1, 5, 6]
    assert [record.getMessage() for record in caplog.records] == [
        "notebook: points cannot be written: no route to the service. Training goes on without them."
    ]
    assert tracker.closed == ["finished"]


def test_a_tracker_that_cannot_be_opened_ends_the_run_before_the_first_update(reporting_updater) -> None:
    class Refused(Notebook):
        def open(self, run: RunInfo, iteration: int) -> None:
            raise PermissionError("no such project")

    tracker, updater = Refused(), reporting_updater()
    with pytest.raises(PermissionError, match="no such project"):
        Trainer(updater, (6, "iteration"), extensions=[TrackerWriter(tracker)]).run()
    assert updater.state.iteration == 0
    assert tracker.closed == []


def test_a_tracker_that_cannot_be_closed_costs_a_warning(reporting_updater, caplog) -> None:
    class Sticky(Notebook):
        def close(self, status: str) -> None:
            raise TimeoutError("still sending")

    with caplog.at_level(logging.WARNING):
        Trainer(reporting_updater(), (1, "iteration"), extensions=[TrackerWriter(Sticky())]).run()
    assert [record.getMessage() for record in caplog.records] == ["notebook cannot be closed: still sending"]


@pytest.mark.parametrize(("how", "status"), [("fail", "failed"), ("stop", "stopped")])
def test_the_tracker_is_told_how_the_run_ended(reporting_updater, how: str, status: str) -> None:
    tracker = Notebook()
    trainer = Trainer(reporting_updater(), (6, "iteration"), extensions=[TrackerWriter(tracker)])

    def end(trainer: Any) -> None:
        if how == "stop":
            trainer.request_stop()
        else:
            raise KeyError("broken")

    trainer.extend(end, trigger=(3, "iteration"))
    if how == "fail":
        with pytest.raises(KeyError):
            trainer.run()
    else:
        trainer.run()
    assert tracker.closed == [status]
    assert [point.iteration for point in tracker.points] == [1, 2, 3]
