"""Rules of saving against golden tables: of the system they come from, where that is right, and of the loop.

In the table of snapshots a file is the folder of a generation here, and a record is a line of the journal. A folder
counts from its rename on, and no longer from its record: a save that is killed between the two is one that succeeded.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_stand_ins import CountingUpdater

from ostinato.dist import batch_size_for_devices
from ostinato.extensions.save import Snapshot
from ostinato.loop import Trainer
from ostinato.runs import BestBar, RunFolder, judge
from ostinato.runs.atomic import set_hook

FAULTS = {"save_without_any_batch_in_between", "nan_in_the_very_first_interval"}
"""Sequences that record a fault: a save without a batch drops the bar to 0; one NaN stops all backups for ever."""


def test_batch_sizes_on_several_devices(golden: Path) -> None:
    rows = json.loads((golden / "run-state-and-config/trainer/distributed_batch_sizes.json").read_text())
    assert rows
    for row in rows:
        found = batch_size_for_devices(row["requested"], row["gpus"])
        better = None if row["suggestions"] is None else tuple(row["suggestions"])
        assert (found.size, found.raised, found.better) == (row["result"], row["raised_to_gpu_count"], better), row


def test_the_best_average(golden: Path) -> None:
    sequences = json.loads((golden / "run-state-and-config/model-folder/backup_rule.json").read_text())
    assert {sequence["id"] for sequence in sequences} > FAULTS
    for sequence in sequences:
        if sequence["id"] in FAULTS:
            continue
        bar = BestBar(sequence["lowest_at_start"] or None)
        for save in sequence["saves"]:
            losses = [float(loss) for loss in save["losses"]]
            is_first = bar.lowest is None
            bar, is_best = judge(bar, sum(losses) / len(losses), len(losses), "")
            # The first average of all sets the bar there without a backup; here it is the best so far.
            assert is_best == (save["backed_up"] or is_first), sequence["id"]
            assert bar.lowest is not None
            assert abs(bar.lowest - float(save["lowest_after"])) < 1e-12


# --- the table of snapshots ------------------------------------------------------------------------------------------

ERRORS = {"ValueError": ValueError, "TypeError": TypeError, "RuntimeError": RuntimeError}


@pytest.fixture
def rows(golden: Path) -> Callable[[Callable[[dict[str, Any]], bool]], list[dict[str, Any]]]:
    """The rows that fulfil a condition."""

    def choose(wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        cases = json.loads((golden / "training-loop" / "snapshot.rule.json").read_text())["cases"]
        found = [case for case in cases if wanted(case)]
        assert found
        return found

    return choose


def _run(out: Path, total: int, *extensions: Any, period: int = 2, **settings: Any) -> Trainer:
    """A run that saves at the iterations of the table; the last one is not saved apart unless a row asks for it."""
    trainer = Trainer(CountingUpdater(), (total, "iteration"), out=out)
    for extension in extensions:
        trainer.extend(extension, priority=-1000)
    trainer.extend(Snapshot(**{"every": (period, "iteration"), "save_last": False, **settings}))
    trainer.run()
    return trainer


def _files(out: Path, *, error: bool = False) -> list[int]:
    return [name.iteration for name in RunFolder(out).names() if name.error == error]


def _records(out: Path, *, error: bool = False) -> list[int]:
    found = RunFolder(out).journal.records()
    return [record["iteration"] for record in found if (record["kind"] == "error") == error]


def _started_at(out: Path, **settings: Any) -> int:
    """The iteration at which the next process begins, told by an extension's initialize."""
    seen: list[int] = []

    class Watcher:
        def __call__(self, trainer: Any) -> None: ...

        def initialize(self, trainer: Any) -> None:
            seen.append(trainer.updater.state.iteration)

    _run(out, 1, Watcher(), **settings)
    return seen[0]


def test_how_many_stay(rows, tmp_path: Path) -> None:
    for case in rows(lambda case: case.get("saves_at") == "2,4,...,20"):
        out = tmp_path / f"run{case['max_size']}"
        _run(out, 20, max_size=case["max_size"])
        assert _files(out) == case["files"]
        assert _records(out) == case["records"]
    (case,) = rows(lambda case: isinstance(case.get("max_size"), str))
    out = tmp_path / "lowered"
    _run(out, 20, max_size=10)
    _run(out, 24, max_size=3)
    assert _files(out) == case["files"]
    assert _records(out) == case["records"]


def test_what_is_no_number_of_snapshots(rows) -> None:
    for case in rows(lambda case: case.get("result") in ("ValueError", "TypeError")):
        with pytest.raises(ERRORS[case["result"]]):
            Snapshot(case["max_size"])


def test_a_folder_that_is_moved(rows, tmp_path: Path) -> None:
    rows(lambda case: case.get("then", "").startswith("output directory moved"))
    _run(tmp_path / "run", 6)
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    assert _started_at(tmp_path / "elsewhere") == 6


def test_an_oldest_file_that_is_gone(rows, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows(lambda case: case.get("then", "").startswith("file of the oldest record deleted by hand"))
    _run(tmp_path, 6)
    shutil.rmtree(tmp_path / "generations" / "00000002")
    _run(tmp_path, 8)
    assert _records(tmp_path) == _files(tmp_path) == [4, 6, 8]
    assert "00000002" in caplog.text


def _saved_at(out: Path, *iterations: int, **settings: Any) -> None:
    trainer = Trainer(CountingUpdater(), (iterations[-1], "iteration"), out=out)
    snapshot = Snapshot(**{"save_last": False, "max_size": -1, **settings})
    trainer.extend(snapshot, trigger=lambda t: t.updater.state.iteration in iterations)
    trainer.run()


def test_files_that_cannot_be_read(rows, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (case,) = rows(lambda case: case.get("then", "").startswith("newest file shorter"))
    out = tmp_path / "newest"
    _saved_at(out, *case["records"])
    path = out / "generations" / "00000014" / "state.json"
    path.write_bytes(path.read_bytes()[:-1])
    assert _started_at(out) == case["loads"]
    assert "00000014" in caplog.text
    assert _records(out) == [10, 12]

    (case,) = rows(lambda case: case.get("then") == "all recorded files unreadable")
    out = tmp_path / "all"
    _saved_at(out, *case["records"])
    for path in (out / "generations").glob("*/state.json"):
        path.write_bytes(b"")
    with pytest.raises(ERRORS[case["result"]]):
        _run(out, 20)


def test_a_journal_that_is_gone_or_broken(rows, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (case,) = rows(lambda case: case.get("then", "").startswith("records.jsonl missing, snapshot files"))
    _saved_at(tmp_path / "gone", 10, 12)
    (tmp_path / "gone" / "journal.jsonl").unlink()
    assert _started_at(tmp_path / "gone") == case["loads"]
    assert "journal.jsonl is missing" in caplog.text

    (case,) = rows(lambda case: case.get("then", "").startswith("records.jsonl missing, no snapshot"))
    (tmp_path / "fresh").mkdir()
    assert _started_at(tmp_path / "fresh") == (case["loads"] or 0)

    (case,) = rows(lambda case: case.get("then", "").startswith("last line of records.jsonl broken"))
    _saved_at(tmp_path / "broken", 10, 12)
    with (tmp_path / "broken" / "journal.jsonl").open("a") as file:
        file.write('{"event": "com')
    assert _started_at(tmp_path / "broken") == case["loads"]
    assert "1 unreadable line" in caplog.text


def test_an_explicit_resume(rows, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (case,) = rows(lambda case: case.get("then", "").startswith("explicit resume from 10"))
    _saved_at(tmp_path, 10, 12, 14)
    _saved_at(tmp_path, 12, resume_from=case["loads"])
    assert _records(tmp_path) == case["records_after_next_save_at_12"]
    (warning,) = [record.message for record in caplog.records if "set aside" in record.message]
    assert "00000012" in warning
    assert "00000014" in warning
    ((_, aside),) = RunFolder(tmp_path).set_aside().items()
    assert [name.iteration for name in aside] == [12, 14]


def _killed(out: Path, moment: str, operation: str, name: str) -> bool:
    """Go on in a process of its own that is killed at one operation of the save at 8. False: it ended by itself."""
    child = os.fork()
    if child == 0:
        try:

            def kill(now: str, what: str, path: Path) -> None:
                if (now, what) == (moment, operation) and str(path).endswith(name):
                    os.kill(os.getpid(), signal.SIGKILL)

            set_hook(kill)
            _run(out, 8, max_size=2)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


KILLS = {
    "before the temporary file is complete": ("after", "write", ".tmp-00000008/model.safetensors"),
    "temporary file complete, not renamed": ("before", "rename", "generations/00000008"),
    "renamed to its final name, records not yet written": ("before", "append", "journal.jsonl"),
    "records replaced, evicted file not yet deleted": ("before", "rename", ".trash-00000004"),
    "evicted file deleted": ("after", "remove_folder", ".trash-00000004"),
}


def test_kills_within_a_save(rows, tmp_path: Path) -> None:
    cases = rows(lambda case: "killed" in case)
    assert {case["killed"] for case in cases} == KILLS.keys()
    for number, case in enumerate(cases):
        out = tmp_path / f"run{number}"
        _saved_at(out, 4, 6, max_size=2)
        assert _killed(out, *KILLS[case["killed"]]), case
        is_committed = 8 in case["files"]
        assert _files(out) == case["files"], case
        assert _records(out) == case["records"], case
        left = [path for path in (out / "generations").iterdir() if path.name.startswith(".tmp-")]
        assert bool(left) == case["temporary_file_left"], case
        assert _started_at(out, max_size=2) == (8 if is_committed else case["next_process_loads"]), case
        assert _files(out) == case["files_after_its_start"], case
        assert _records(out) == _files(out), case


def test_the_state_of_an_error(rows, tmp_path: Path) -> None:
    logging.disable(logging.ERROR)  # the errors are on purpose
    try:
        for number, case in enumerate(rows(lambda case: "extension_raises_at" in case)):
            out = tmp_path / f"run{number}"

            def fail(trainer: Any, at: int = case["extension_raises_at"]) -> None:
                if trainer.updater.state.iteration == at:
                    raise OverflowError

            with pytest.raises(OverflowError):
                _run(out, 20, fail, max_size=2, snapshot_on_error=case["snapshot_on_error"])
            assert _records(out) == _files(out) == case["regular_records"]
            assert _records(out, error=True) == _files(out, error=True) == case["error_records"]
            assert _started_at(out, max_size=2) == case["next_process_loads"]
            for iteration in case["error_records"]:  # it can be named
                assert _started_at(out, max_size=2, resume_from=f"{iteration:08d}-error") == iteration
    finally:
        logging.disable(logging.NOTSET)


def test_the_last_state(rows, tmp_path: Path) -> None:
    for number, case in enumerate(rows(lambda case: "save_last" in case)):
        out = tmp_path / f"run{number}"
        _run(out, case["total"], period=case["snapshot_period"], save_last=case["save_last"])
        commits = [entry for entry in RunFolder(out).journal.read()[0] if entry["event"] == "commit"]
        assert [entry["iteration"] for entry in commits] == case["records"]
        if "kinds" in case:
            assert [entry["kind"] for entry in commits] == case["kinds"]


def test_a_process_after_the_end(rows, tmp_path: Path) -> None:
    (case,) = rows(lambda case: case.get("then") == "process started again after the end")
    _run(tmp_path, 10, save_last=True)
    before = (tmp_path / "journal.jsonl").read_bytes()
    again = _run(tmp_path, 10, save_last=True)
    assert again.updater.state.iteration - 10 == case["updates"]
    assert (tmp_path / "journal.jsonl").read_bytes() == before
    (case,) = rows(lambda case: case.get("then", "").startswith("second process: iteration seen by initialize"))
    assert _started_at(tmp_path) == 10


# --- whole runs that are killed and go on ----------------------------------------------------------------------------


class _KilledError(BaseException):
    pass


def test_whole_runs_over_kills_and_resumes_from_generations(golden: Path, tmp_path: Path) -> None:
    logging.disable(logging.ERROR)  # the kills are on purpose
    try:
        cases = json.loads((golden / "training-loop" / "resume.rule.json").read_text())["cases"]
        for number, case in enumerate(cases):
            _walk_kills(case, tmp_path / f"run{number}")
    finally:
        logging.disable(logging.NOTSET)


def _walk_kills(case: dict[str, Any], out: Path) -> None:
    on_kept_line: dict[str, list[int]] = {name: [] for name in case["triggers"]}
    for number, segment in enumerate(case["segments"]):
        fired: dict[str, list[int]] = {name: [] for name in case["triggers"]}
        trainer = Trainer(CountingUpdater(case["updates_per_epoch"]), (case["total"], "iteration"), out=out)
        for name, trigger in case["triggers"].items():
            trainer.extend(
                lambda t, mine=fired[name]: mine.append(t.updater.state.iteration), name=name, trigger=tuple(trigger)
            )
        saved: list[int] = []
        trainer.extend(
            Snapshot(
                every=(case["snapshot_period"], "iteration"),
                save_last=False,
                on_result=lambda result, saved=saved: saved.append(result.iteration),
            )
        )

        def kill(t: Trainer, at: int | None = segment["killed_after"]) -> None:
            if t.updater.state.iteration == at:
                t.get_extension("snapshot").settle()
                raise _KilledError

        trainer.extend(kill, name="kill", priority=-1000)
        if segment["killed_after"] is None:
            trainer.run()
        else:
            with pytest.raises(_KilledError):
                trainer.run()
        assert fired == segment["fired"], case
        assert saved == segment["snapshots"], case
        assert trainer.updater.state.epoch == segment["epoch_after"], case
        following = case["segments"][number + 1 :]
        kept_until = following[0]["starts_from"] if following else case["total"]
        for name, iterations in fired.items():
            on_kept_line[name] += [iteration for iteration in iterations if iteration <= kept_until]
    assert on_kept_line == case["fired_on_the_kept_line"], case
