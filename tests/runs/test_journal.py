from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.runs import RunFolder
from ostinato.runs.journal import Journal

_NAMES = st.sampled_from(["00000010", "00000020", "00000020-2", "00000030-error", "x", "../00000010", 7, None])
_VALUES = st.recursive(
    _NAMES | st.booleans() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)
_ENTRIES = st.dictionaries(
    st.sampled_from(["generation", "generations", "moves", "iteration", "lines"]), _VALUES | _NAMES
).flatmap(
    lambda fields: st.sampled_from(
        ["commit", "mark", "evict", "gone", "damage", "restore", "unreadable", "other", 3, None]
    ).map(lambda event: {**fields, "event": event})
)
_LINES = st.lists(_ENTRIES.map(json.dumps) | st.text(max_size=8) | st.just("[1, 2]"), max_size=12)


@given(_LINES)
def test_no_line_is_so_odd_that_the_others_cannot_be_read(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    journal = Journal(path)
    entries, broken = journal.read()
    assert len(entries) + broken <= sum(line.count("\n") + 1 for line in lines)
    assert all(isinstance(record, dict) for record in journal.records())
    assert journal.find_out().unreadable_lines <= broken


def _events(run: RunFolder) -> list[str]:
    return [entry["event"] for entry in run.journal.read()[0]]


def _records(run: RunFolder) -> list[str]:
    return [record["generation"] for record in run.journal.records()]


def _reopen(run: RunFolder) -> RunFolder:
    run.close()
    return RunFolder(run.path, files=run.files).open()


def _save(run: RunFolder, make_content: Any, *iterations: int, **fields: Any) -> None:
    for iteration in iterations:
        run.commit(run.pack(make_content(iteration, **fields)))


def test_the_records_are_those_of_the_generations_that_count(run: RunFolder, make_content: Any) -> None:
    _save(run, make_content, 10, 20, 30)
    assert _records(run) == ["00000020", "00000030"]
    record = run.journal.records()[0]
    assert {"time", "path", "iteration", "epoch", "kind", "bytes"} <= record.keys()
    assert record["path"] == "generations/00000020"
    assert record["kind"] == "regular"
    (evicted,) = [entry for entry in run.journal.read()[0] if entry["event"] == "evict"]
    assert (evicted["path"], evicted["iteration"], evicted["evicted"]) == ("generations/00000010", 10, True)


@pytest.mark.parametrize(
    ("reasons", "kind"),
    [
        (("latest",), "regular"),
        (("latest", "snapshot"), "regular"),
        (("latest", "best"), "best"),
        (("latest", "session_end", "best"), "last"),
        (("latest", "signal"), "signal"),
        (("error",), "error"),
    ],
)
def test_a_record_has_one_kind(run: RunFolder, make_content: Any, reasons: tuple[str, ...], kind: str) -> None:
    _save(run, make_content, 10, reasons=reasons)
    assert [record["kind"] for record in run.journal.records()] == [kind]


def test_going_back_and_undoing_it_moves_the_records_too(run: RunFolder, make_content: Any) -> None:
    _save(run, make_content, 10, 20)
    run.restore(10)
    assert _records(run) == ["00000010"]
    run.undo_restore()
    assert _records(run) == ["00000010", "00000020"]


def test_a_missing_journal_is_begun_anew_with_a_warning(run: RunFolder, make_content: Any) -> None:
    _save(run, make_content, 10, 20)
    before = run.journal.records()
    run.journal.path.unlink()
    run = _reopen(run)
    assert any("journal.jsonl is missing" in notice for notice in run.notices)
    assert run.journal.records() == before
    run = _reopen(run)
    assert run.notices == []
    run.close()


def test_unreadable_lines_are_told_once_and_kept(run: RunFolder, make_content: Any) -> None:
    _save(run, make_content, 10)
    with run.journal.path.open("a") as file:
        file.write('{"event": "comm\n{"event"')
    run = _reopen(run)
    assert any("2 unreadable line(s)" in notice for notice in run.notices)
    run = _reopen(run)
    assert run.notices == []
    assert run.journal.read()[1] == 2
    run.close()


def test_a_commit_whose_line_was_not_written_gets_it_later(run: RunFolder, make_content: Any) -> None:
    _save(run, make_content, 10, 20)
    lines = run.journal.path.read_text().splitlines()
    run.journal.path.write_text("\n".join(lines[:-1]) + "\n")
    run = _reopen(run)
    assert run.notices == []
    assert _records(run) == ["00000010", "00000020"]
    run.close()


def test_a_generation_that_somebody_removed_is_told_once(run: RunFolder, make_content: Any) -> None:
    import shutil

    _save(run, make_content, 10, 20)
    shutil.rmtree(run.generations_path / "00000010")
    run = _reopen(run)
    assert any("00000010" in notice and "removed by somebody else" in notice for notice in run.notices)
    assert _records(run) == ["00000020"]
    run = _reopen(run)
    assert run.notices == []
    run.close()


def test_what_was_evicted_set_aside_or_damaged_is_not_missed(run: RunFolder, make_content: Any) -> None:
    _save(run, make_content, 10, 20, 30, 40)
    run.restore(30)
    (run.generations_path / "00000030" / "state.json").write_text("{}")
    _save(run, make_content, 35)
    (run.generations_path / "00000035" / "state.json").write_text("{}")
    again_open = _reopen(run)
    with pytest.raises(RuntimeError):
        again_open.load_newest()
    again = _reopen(again_open)
    assert again.notices == []
    again.close()


def test_an_eviction_that_was_only_told_is_finished_at_the_next_start(run: RunFolder, make_content: Any) -> None:
    from ostinato.runs.atomic import set_hook

    class _StopError(BaseException):
        pass

    def stop(moment: str, operation: str, path: Path) -> None:
        if moment == "before" and path.name == ".trash-00000010":
            raise _StopError

    _save(run, make_content, 10, 20)
    set_hook(stop)
    with pytest.raises(_StopError):
        _save(run, make_content, 30)
    set_hook(None)
    assert [name.iteration for name in run.names()] == [10, 20, 30]
    assert _records(run) == ["00000020", "00000030"]
    run = _reopen(run)
    assert [name.iteration for name in run.names()] == [20, 30]
    run.close()


def test_a_line_in_the_journal_alone_removes_nothing_that_is_wanted(run: RunFolder, make_content: Any) -> None:
    _save(run, make_content, 10, 20)
    for name in ("00000010", "00000020"):
        run.journal.add("evict", generation=name, evicted=True)
    run = _reopen(run)
    assert [name.iteration for name in run.names()] == [10, 20]
    run.close()
