from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loop_stand_ins import CountingUpdater, ListOfSnapshots
from second_rank import second_rank

from ostinato.errors import StateError
from ostinato.extensions.profile_report import ProfileReport
from ostinato.loop import PRIORITY_SNAPSHOT, Extension, Trainer


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow(CountingUpdater):
    """Reads for one second and computes for three."""

    batch_read_time = 1.0
    batch_time = 3.0

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def update(self) -> None:
        self.clock.now += 4.0
        super().update()


def run(out: Path, stop: int, *reports: ProfileReport, clock: Clock, updater: Any = None, kept: Any = None) -> None:
    trainer = Trainer(updater or Slow(clock), (stop, "iteration"), out=out, clock=clock)

    def takes(seconds: float) -> Any:
        def spend(trainer: Any) -> None:
            clock.now += seconds

        return spend

    trainer.extend(takes(10.0), name="validation", trigger=(2, "iteration"))
    trainer.extend(takes(0.5), name="update")  # a name that nothing forbids
    trainer.extend(takes(2.0), name="saving", priority=PRIORITY_SNAPSHOT, trigger=(4, "iteration"))
    for report in reports:
        trainer.extend(report)
    if kept is not None:
        trainer.extend(ListOfSnapshots(kept), trigger=(3, "iteration"))
    trainer.run()


def test_a_table_tells_what_the_update_and_every_extension_took(tmp_path: Path) -> None:
    clock = Clock()
    tables: list[str] = []
    run(tmp_path, 8, ProfileReport((4, "iteration"), write=tables.append, clock=clock), clock=clock)
    assert tables[0] == (
        "iterations 1 to 4 in 40.000 s\n"
        "\n"
        "                 calls  total s  share    mean ms  longest ms\n"
        "update               4   16.000  40.0%   4000.000    4000.000\n"
        "  reading            4    4.000  10.0%   1000.000    1000.000\n"
        "  computing          4   12.000  30.0%   3000.000    3000.000\n"
        "validation           2   20.000  50.0%  10000.000   10000.000\n"
        "update               4    2.000   5.0%    500.000     500.000\n"
        "saving               1    2.000   5.0%   2000.000    2000.000\n"
        "the loop itself           0.000   0.0%\n"
    )
    assert tables[1] == tables[0].replace("iterations 1 to 4", "iterations 5 to 8")
    assert (tmp_path / "profile.txt").read_text() == tables[1]


def test_an_updater_that_measures_nothing_has_one_line_and_what_did_not_run_no_mean(
    tmp_path: Path,
) -> None:
    clock = Clock()
    tables: list[str] = []
    report = ProfileReport((1, "iteration"), None, write=tables.append, clock=clock)
    run(tmp_path, 1, report, clock=clock, updater=CountingUpdater())
    lines = [" ".join(line.split()) for line in tables[0].splitlines()]
    assert lines[3:6] == [
        "update 1 0.000 0.0% 0.000 0.000",
        "validation 0 0.000 0.0%",
        "update 1 0.500 100.0% 500.000 500.000",
    ]
    assert list(tmp_path.iterdir()) == []


def test_what_raises_is_timed_and_goes_on(tmp_path: Path) -> None:
    report = ProfileReport()
    trainer = Trainer(CountingUpdater(), (3, "iteration"), out=tmp_path, extensions=[report])
    trainer.extend(lambda trainer: 1 / 0, name="broken", trigger=(2, "iteration"))
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    assert trainer.updater.state.iteration == 2
    assert report._times["broken"].calls == 1


def test_two_reports_do_not_disturb_each_other(tmp_path: Path) -> None:
    clock = Clock()
    first: list[str] = []
    second: list[str] = []
    run(
        tmp_path,
        4,
        ProfileReport((4, "iteration"), "a.txt", write=first.append, clock=clock),
        ProfileReport((2, "iteration"), "b.txt", write=second.append, clock=clock),
        clock=clock,
    )
    assert "iterations 1 to 4" in first[0]
    assert [table.splitlines()[0] for table in second] == [
        "iterations 1 to 2 in 19.000 s",
        "iterations 3 to 4 in 21.000 s",
    ]


def test_after_a_resume_tables_come_at_the_same_iterations(tmp_path: Path) -> None:
    clock, kept = Clock(), []
    tables: list[str] = []
    for stop in (5, 9):
        run(
            tmp_path,
            stop,
            ProfileReport((4, "iteration"), None, write=tables.append, clock=clock),
            clock=clock,
            kept=kept,
        )
    assert [table.splitlines()[0].partition(" in ")[0] for table in tables] == [
        "iterations 1 to 4",
        "iterations 4 to 4",
        "iterations 5 to 8",
    ]


def test_another_rank_times_nothing(tmp_path: Path) -> None:
    report = ProfileReport((1, "iteration"))
    trainer = second_rank(tmp_path)
    report.initialize(trainer)
    trainer.updater.update()
    report(trainer)
    assert list(tmp_path.iterdir()) == []


def test_calls_are_wrapped_when_the_loop_begins_and_not_later(tmp_path: Path) -> None:
    def wrap(name: str | None, call: Any) -> Any:
        return call

    class Late(Extension):
        def __call__(self, trainer: Any) -> None:
            trainer.wrap_calls(wrap)

    with pytest.raises(StateError, match=r"Call wrap_calls\(\) in the initialize\(\) of an extension"):
        Trainer(CountingUpdater(), (1, "iteration"), out=tmp_path).wrap_calls(wrap)
    with pytest.raises(StateError, match="put together when it begins"):
        Trainer(CountingUpdater(), (1, "iteration"), out=tmp_path, extensions=[Late()]).run()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"trigger": 5}, TypeError, "5 is not a trigger"),
        ({"filename": ""}, ValueError, "cannot be the name of a file"),
        ({"write": "log"}, TypeError, "write must be something to call, not 'log'"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ProfileReport(**arguments)
