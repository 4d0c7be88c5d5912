from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_stand_ins import CountingUpdater, ListOfSnapshots
from second_rank import second_rank

from ostinato.extensions.log_report import LogReport
from ostinato.extensions.print_report import PrintReport
from ostinato.loop import Extension, Trainer, report
from ostinato.runs import atomic


class Reporting(CountingUpdater):
    """Reports the number of the update, as a tensor, and every third time another number."""

    def update(self) -> None:
        number = self.state.iteration + 1
        report("loss", torch.tensor(float(number)))
        if number % 3 == 0:
            report("seldom", (number, 2))
        super().update()


def run(out: Path, stop: int, *extensions: Any, kept: list[Any] | None = None, save_every: int = 1) -> Trainer:
    trainer = Trainer(Reporting(updates_per_epoch=4), (stop, "iteration"), out=out, clock=lambda: 0.0)
    for extension in extensions:
        trainer.extend(extension)
    if kept is not None:
        trainer.extend(ListOfSnapshots(kept), trigger=(save_every, "iteration"))
    trainer.run()
    return trainer


def record(epoch: int, iteration: int, **means: float) -> dict[str, Any]:
    return {"epoch": epoch, "iteration": iteration, "elapsed_time": 0.0, **means}


def test_every_epoch_gets_a_record_of_the_means(tmp_path: Path) -> None:
    log = LogReport()
    trainer = run(tmp_path, 9, log)
    assert trainer.name_of(log) == "LogReport"
    expected = [record(1, 4, loss=2.5, seldom=3.0), record(2, 8, loss=6.5, seldom=6.0)]
    assert log.records == expected
    assert json.loads((tmp_path / "log").read_text()) == expected
    assert list(log.records[0]) == ["epoch", "iteration", "elapsed_time", "loss", "seldom"]
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_only_the_keys_that_were_asked_for(tmp_path: Path) -> None:
    log = LogReport(keys=["seldom"], trigger=(2, "iteration"), filename=None)
    run(tmp_path, 4, log)
    assert log.records == [record(0, 2), record(1, 4, seldom=3.0)]
    assert list(tmp_path.iterdir()) == []


def test_no_reported_name_hides_the_place_of_a_record(tmp_path: Path) -> None:
    log = LogReport(trigger=(1, "iteration"))
    trainer = Trainer(CountingUpdater(), (1, "iteration"), out=tmp_path, extensions=[log])
    trainer.extend(lambda trainer: report("iteration", 77.0), priority=300, name="liar")
    trainer.run()
    assert log.records[0]["iteration"] == 1


def read(path: Path) -> list[dict[str, Any]]:
    text = path.read_text()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return yaml.safe_load(text) if path.suffix in (".yaml", ".yml") else json.loads(text)


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("filename", ["log.jsonl", "deep/in/log.yaml", "log.yml"])
def test_the_end_of_the_name_says_the_format(tmp_path: Path, filename: str, append: bool) -> None:
    log = LogReport(trigger=(2, "iteration"), filename=filename, append=append)
    run(tmp_path, 7, log)
    assert read(tmp_path / filename) == log.records
    assert len(log.records) == 3


def test_a_format_can_be_asked_for(tmp_path: Path) -> None:
    run(tmp_path, 4, LogReport(filename="a.txt", format="json-lines"), LogReport(filename="b.txt", format="yaml"))
    assert json.loads((tmp_path / "a.txt").read_text()) == yaml.safe_load((tmp_path / "b.txt").read_text())[0]


def test_numbers_that_json_does_not_have_are_texts_in_the_file_alone(tmp_path: Path) -> None:
    class Strange(CountingUpdater):
        def update(self) -> None:
            report("nan", torch.tensor(math.nan))
            report("up", math.inf)
            super().update()

    log = LogReport(trigger=(1, "iteration"))
    Trainer(Strange(), (1, "iteration"), out=tmp_path, extensions=[log]).run()
    assert '"nan": "nan"' in (tmp_path / "log").read_text()
    assert '"up": "inf"' in (tmp_path / "log").read_text()
    assert math.isnan(log.records[0]["nan"])


class Killed(BaseException):
    pass


@settings(max_examples=25, deadline=None)
@given(
    kills=st.lists(st.integers(1, 30), max_size=4),
    period=st.integers(1, 7),
    save_every=st.integers(1, 6),
    filename=st.sampled_from(["log", "log.jsonl", "log.yaml"]),
    append=st.booleans(),
)
def test_over_any_kills_every_record_of_the_kept_line_is_there_once_and_printed_once(
    kills, period, save_every, filename, append
) -> None:
    append = append and filename != "log"

    def play(out: Path, kills: list[int]) -> tuple[Any, list[dict[str, Any]], list[tuple[int, str]]]:
        kept: list[Any] = []
        printed: list[tuple[int, str]] = []  # the iteration, the line
        for kill_at in [*kills, None]:
            log = LogReport(trigger=(period, "iteration"), filename=filename, append=append)
            trainer = Trainer(Reporting(), (30, "iteration"), out=out, clock=lambda: 0.0)
            here: list[tuple[int, str]] = []
            trainer.extend(
                PrintReport(
                    ["iteration", "loss", "seldom"],
                    out=lambda line, t=trainer, here=here: here.append((t.updater.state.iteration, line)),
                ),
            )
            trainer.extend(log)
            trainer.extend(ListOfSnapshots(kept), trigger=(save_every, "iteration"))

            def kill(t: Any, kill_at: int | None = kill_at, log: LogReport = log) -> None:
                if t.updater.state.iteration == kill_at:
                    log._file = None  # who is killed writes nothing more
                    raise Killed

            trainer.extend(kill, priority=-1000)
            with contextlib.suppress(Killed):
                trainer.run()
            kept[:] = kept[-1:]
            resumed_at = kept[0]["updater"]["state"]["iteration"] if kept else 0
            printed += [entry for entry in here if kill_at is None or entry[0] <= resumed_at]
            # A table that was lost as a whole begins again with its head.
        return read(out / filename), list(log.records), [entry for entry in printed if "iteration" not in entry[1]]

    logging.disable(logging.CRITICAL)
    patch = pytest.MonkeyPatch()
    patch.setattr(os, "fsync", lambda descriptor: None)  # thousands of small files; what is asked for is their content
    try:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            straight = play(Path(one), [])
            assert play(Path(other), kills) == straight
            assert [entry["iteration"] for entry in straight[1]] == list(range(period, 31, period))
            assert len(straight[2]) == len(straight[1])
    finally:
        patch.undo()
        logging.disable(logging.NOTSET)


def test_what_was_gathered_for_the_next_record_is_not_lost(tmp_path: Path) -> None:
    kept: list[Any] = []
    run(tmp_path, 6, LogReport(), kept=kept, save_every=3)
    log = LogReport()
    run(tmp_path, 8, log, kept=kept)
    assert log.records == [record(1, 4, loss=2.5, seldom=3.0), record(2, 8, loss=6.5, seldom=6.0)]


def test_after_a_resume_the_file_follows_the_records_before_the_first_update(tmp_path: Path) -> None:
    kept: list[Any] = []
    run(tmp_path, 5, LogReport(filename="log.jsonl", append=True), kept=kept, save_every=3)
    seen: list[str] = []

    class Look(Extension):
        def initialize(self, trainer: Any) -> None:
            seen.append((tmp_path / "log.jsonl").read_text())

        def __call__(self, trainer: Any) -> None:
            pass

    run(tmp_path, 4, LogReport(filename="log.jsonl", append=True), Look(), kept=kept)
    assert seen == [""]  # the record of iteration 4 is not on the kept line


def test_a_fresh_run_leaves_an_older_file_until_it_has_a_record(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("[1]")
    run(tmp_path, 3, LogReport())
    assert (tmp_path / "log").read_text() == "[1]"
    run(tmp_path, 4, LogReport())
    assert len(json.loads((tmp_path / "log").read_text())) == 1


@pytest.mark.parametrize(("filename", "append"), [("log", False), ("log.jsonl", True)])
def test_a_full_disk_costs_one_warning_and_no_record(tmp_path: Path, caplog, filename: str, append: bool) -> None:
    log = LogReport(trigger=(1, "iteration"), filename=filename, append=append)
    trainer = Trainer(Reporting(), (6, "iteration"), out=tmp_path, extensions=[log])

    def full(moment: str, operation: str, path: Path) -> None:
        if moment == "before" and operation in ("write", "append") and 2 <= trainer.updater.state.iteration <= 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = atomic.set_hook(full)
    try:
        with caplog.at_level(logging.WARNING):
            trainer.run()
    finally:
        atomic.set_hook(before)
    assert [entry["iteration"] for entry in read(tmp_path / filename)] == [1, 2, 3, 4, 5, 6]
    assert len(caplog.records) == 1
    assert f"{tmp_path / filename} cannot be written: No space left on device. Training goes on" in caplog.text


def test_another_rank_records_and_writes_nothing(tmp_path: Path) -> None:
    log = LogReport(trigger=(1, "iteration"))
    trainer = second_rank(tmp_path)
    log.initialize(trainer)
    trainer.updater.update()
    log(trainer)
    assert log.records == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"keys": 5}, TypeError, "keys must be a list of names, not 5"),
        ({"keys": ["a", 5]}, TypeError, "keys holds 5, not a text"),
        ({"keys": []}, ValueError, "keys is empty"),
        ({"keys": ["a", "b", "a"]}, ValueError, "keys names 'a' twice"),
        ({"keys": [""]}, ValueError, "keys holds an empty name"),
        ({"trigger": 5}, TypeError, "5 is not a trigger"),
        ({"trigger": (0, "epoch")}, ValueError, "period must be above 0"),
        ({"filename": 5}, TypeError, "filename must be a text, not 5"),
        ({"filename": ""}, ValueError, "cannot be the name of a file"),
        ({"format": "xml"}, ValueError, "format is 'xml'. Use one of json, json-lines, yaml"),
        ({"append": True}, ValueError, "cannot grow at its end. Use format='json-lines'"),
        ({"append": "yes", "filename": "a.jsonl"}, TypeError, "append must be True or False, not 'yes'"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        LogReport(**arguments)


def test_a_state_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="register LogReport under another name"):
        LogReport().load_state_dict({"format": None})
