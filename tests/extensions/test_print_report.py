from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
from loop_stand_ins import CountingUpdater, ListOfSnapshots
from second_rank import second_rank

from ostinato.extensions.log_report import LogReport
from ostinato.extensions.print_report import PrintReport
from ostinato.loop import PRIORITY_WRITER, Trainer, report


def run(stop: int, *extensions: Any, kept: list[Any] | None = None, save_every: int = 2) -> None:
    trainer = Trainer(CountingUpdater(updates_per_epoch=2), (stop, "iteration"), extensions=extensions)
    trainer.extend(
        lambda t: report("main", 1 / t.updater.state.iteration), priority=PRIORITY_WRITER, name="report main"
    )
    trainer.extend(
        lambda t: report("validation/accuracy", math.nan),
        priority=PRIORITY_WRITER,
        trigger=(4, "iteration"),
        name="report accuracy",
    )
    if kept is not None:
        trainer.extend(ListOfSnapshots(kept), trigger=(save_every, "iteration"))
    trainer.run()


ENTRIES = ["epoch", "iteration", "main", "validation/accuracy"]


def test_records_are_lines_of_a_table_with_a_head() -> None:
    lines: list[str] = []
    run(4, PrintReport(ENTRIES, out=lines.append), LogReport())
    assert lines == [
        "epoch       iteration   main        validation/accuracy",
        "1           2           0.75",
        "2           4           0.291667    nan",
    ]


def test_after_a_resume_no_line_is_printed_again_and_none_is_left_out() -> None:
    kept: list[Any] = []
    first: list[str] = []
    run(4, LogReport(), PrintReport(ENTRIES, out=first.append), kept=kept)
    second: list[str] = []
    run(6, LogReport(), PrintReport(ENTRIES, out=second.append), kept=kept)
    assert [line.split()[0] for line in first] == ["epoch", "1", "2"]
    assert [line.split()[0] for line in second] == ["epoch", "3"]


def test_a_slow_trigger_leaves_nothing_behind() -> None:
    lines: list[str] = []
    trainer = Trainer(CountingUpdater(updates_per_epoch=2), (10, "iteration"), extensions=[LogReport()])
    trainer.extend(PrintReport(["epoch"], out=lines.append), trigger=(4, "epoch"))
    trainer.run()
    assert lines == ["epoch", "1", "2", "3", "4", "5"]


def test_the_standard_output_is_the_one_of_the_moment(capsys: pytest.CaptureFixture[str]) -> None:
    run(2, LogReport(), PrintReport(["iteration"]))
    assert capsys.readouterr().out == "iteration\n2\n"


def test_a_stream_can_be_given() -> None:
    stream = io.StringIO()
    run(2, LogReport(), PrintReport(["iteration"], out=stream))
    assert stream.getvalue() == "iteration\n2\n"


def test_the_report_can_be_named_or_given_itself() -> None:
    lines: list[str] = []
    fast = LogReport(trigger=(1, "iteration"), filename="fast")
    run(2, LogReport(), fast, PrintReport(["iteration"], fast, lines.append))
    again = LogReport(trigger=(1, "iteration"), filename="fast")
    run(2, LogReport(), again, PrintReport(["iteration"], "LogReport_1", lines.append))
    assert lines == ["iteration", "1", "2"] * 2


def test_a_report_that_is_not_there_is_an_error_before_the_first_update() -> None:
    with pytest.raises(ValueError, match="No extension is named 'LogReport'"):
        run(2, PrintReport(["iteration"]))
    with pytest.raises(ValueError, match="is not registered here"):
        run(2, PrintReport(["iteration"], LogReport()))
    with pytest.raises(TypeError, match="PrintReport works with a LogReport, and the extension 'report main' is a"):
        run(2, PrintReport(["iteration"], "report main"))


def test_a_report_that_lost_its_state_is_printed_from_its_start() -> None:
    lines: list[str] = []
    printing = PrintReport(["iteration"], out=lines.append)
    printing.load_state_dict({"format": 1, "printed": 5})
    run(2, LogReport(), printing)
    assert lines == ["iteration", "2"]


def test_another_rank_prints_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    log, printing = LogReport(trigger=(1, "iteration")), PrintReport(["iteration"], out=lines.append)
    trainer = second_rank(tmp_path, log)
    log.load_state_dict({"format": 1, "trigger": {}, "means": {}, "records": [{"iteration": 1}]})
    printing.initialize(trainer)
    printing(trainer)
    printing.finalize(trainer)
    assert lines == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"entries": 5}, TypeError, "entries must be a list of names, not 5"),
        ({"entries": []}, ValueError, "entries is empty"),
        ({"entries": ["a", "a"]}, ValueError, "entries names 'a' twice"),
        ({"entries": ["a"], "log_report": 5}, TypeError, "log_report must be the name of a LogReport, or one, not 5"),
        ({"entries": ["a"], "out": "file"}, TypeError, "out must be a stream or something to call, not 'file'"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PrintReport(**arguments)
