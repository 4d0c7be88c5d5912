from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from loop_stand_ins import CountingUpdater
from rich.console import Console
from second_rank import second_rank

from ostinato.extensions.progress_bar import ProgressBar
from ostinato.loop import Trainer


def run(stop: Any, *bars: ProgressBar, updates_per_epoch: int | None = None, until: int | None = None) -> None:
    """Two seconds per update."""
    now = [0.0]

    class Slow(CountingUpdater):
        def update(self) -> None:
            now[0] += 2.0
            super().update()

    trainer = Trainer(Slow(updates_per_epoch), stop, extensions=bars, clock=lambda: now[0])
    if until is not None:
        trainer.extend(lambda trainer: trainer.request_stop(), name="stop", trigger=(until, "iteration"))
    trainer.run()


@pytest.mark.parametrize("stop", [(50, "iteration"), [lambda trainer: False, (50, "iteration"), (1, "epoch")]])
def test_elsewhere_than_on_a_terminal_each_display_is_a_line(stop: Any) -> None:
    lines: list[str] = []
    run(stop, ProgressBar(None, 20, 10, write=lines.append))
    assert lines == [
        "[####......] 40.00% · 20 iterations · 0.5 iterations/s · 0:01:00 left",
        "[########..] 80.00% · 40 iterations · 0.5 iterations/s · 0:00:20 left",
        "[##########] 100.00% · 50 iterations · 0.5 iterations/s",
    ]


def test_epochs_are_shown_where_they_are_known() -> None:
    lines: list[str] = []
    run((4, "epoch"), ProgressBar(None, 30, 10, write=lines.append), updates_per_epoch=20, until=30)
    assert lines == ["[###.......] 37.50% · 30 iterations, 1 of 4 epochs · 0.5 iterations/s · 0:01:40 left"]
    run((1, "iteration"), ProgressBar(None, 1, 10, write=lines.append), updates_per_epoch=1)
    assert lines[1] == "[##########] 100.00% · 1 iteration, 1 epoch · 0.5 iterations/s"


@pytest.mark.parametrize("stop", [None, lambda trainer: False])
def test_without_an_end_there_is_no_bar_over_the_whole(stop: Any) -> None:
    lines: list[str] = []
    run(stop, ProgressBar(None, 7, write=lines.append), until=7)
    assert lines == ["7 iterations · 0.5 iterations/s"]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        ((140, "iteration"), "[#....] 20.00% · 28 iterations, 4 epochs · 0.5 iterations/s · 0:03:44 left"),
        ((14, "epoch"), "[#....] 28.57% · 28 iterations, 4 of 14 epochs · 0.5 iterations/s · 0:02:20 left"),
        ((112, "second"), "[##...] 50.00% · 28 iterations, 4 epochs · 0.5 iterations/s · 0:00:56 left"),
        ([1, "sample"], "[.....] 0.00% · 28 iterations, 4 epochs · 0.5 iterations/s"),
    ],
)
def test_the_length_of_the_training_can_be_given(length: Any, expected: str) -> None:
    lines: list[str] = []
    run(None, ProgressBar(length, 28, 5, write=lines.append), updates_per_epoch=7, until=28)
    assert lines == [expected]


def test_on_a_terminal_two_bars_are_rewritten_in_place() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100, color_system=None)
    run(
        (10, "epoch"),
        ProgressBar(update_interval=146, bar_length=50, console=console),
        updates_per_epoch=500,
        until=200,
    )
    shown = output.getvalue()
    assert (
        "     total [#.................................................] 2.92%\n"
        "this epoch [##############....................................] 29.20%\n"
        "       146 iterations, 0 of 10 epochs\n"
        "       0.5 iterations/s · 2:41:48 left"
    ) in shown
    assert "\x1b[2K" in shown
    last = shown[shown.rindex("     total") :].splitlines()
    assert last[0].endswith(" 4.00%")
    assert last[1].endswith(" 40.00%")


def test_by_default_it_writes_to_the_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(update_interval=1, bar_length=4)
    run((2, "iteration"), bar)
    assert capsys.readouterr().out.splitlines() == [
        "[##..] 50.00% · 1 iteration · 0.5 iterations/s · 0:00:02 left",
        "[####] 100.00% · 2 iterations · 0.5 iterations/s",
    ]


def test_a_line_that_is_no_terminals_is_never_folded(capsys: pytest.CaptureFixture[str]) -> None:
    run((2, "iteration"), ProgressBar(update_interval=2, bar_length=300))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("[" + 300 * "#" + "]")


def test_another_rank_shows_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    bar = ProgressBar(update_interval=1, write=lines.append)
    trainer = second_rank(tmp_path)
    bar.initialize(trainer)
    trainer.updater.update()
    bar(trainer)
    bar.finalize(trainer)
    assert lines == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"training_length": 10}, TypeError, "training_length must be a number and a unit, not 10"),
        ({"training_length": (10, "hours")}, ValueError, "unit is 'hours'"),
        ({"training_length": (0, "epoch")}, ValueError, "limit must be above 0"),
        ({"update_interval": 0}, ValueError, "update_interval must be above 0"),
        ({"update_interval": "5"}, TypeError, "update_interval must be a number"),
        ({"bar_length": 2.5}, ValueError, "bar_length must be a whole number"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ProgressBar(**arguments)
