from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ostinato.data.recordio import RecordFile, RecordWriter, read_index
from ostinato.data.recordio.chunks import MAGIC_BYTES, encode_record
from ostinato.errors import ArgumentValueError, StateError


def test_records_and_index_are_written(tmp_path: Path) -> None:
    payloads = {5: b"five", 2: MAGIC_BYTES + b"two", 0: b""}
    with RecordWriter(tmp_path / "set.rec") as writer:
        offsets = [writer.write(key, payload) for key, payload in payloads.items()]
    assert (tmp_path / "set.rec").read_bytes() == b"".join(map(encode_record, payloads.values()))
    index = read_index(tmp_path / "set.idx", record_bytes=(tmp_path / "set.rec").stat().st_size)
    assert index.keys.tolist() == [5, 2, 0]
    assert index.offsets.tolist() == offsets
    with RecordFile(tmp_path / "set.rec") as file:
        assert [file.read(offset) for offset in offsets] == list(payloads.values())


def test_nothing_appears_before_the_commit_and_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "set.rec").write_bytes(b"old")

    def write_and_fail() -> None:
        with RecordWriter(tmp_path / "set.rec") as writer:
            writer.write(0, b"new")
            assert (tmp_path / "set.rec").read_bytes() == b"old"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert [path.name for path in tmp_path.iterdir()] == ["set.rec"]
    assert (tmp_path / "set.rec").read_bytes() == b"old"


def test_a_killed_writer_leaves_what_was_there(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from ostinato.data.recordio import RecordWriter\n"
        "writer = RecordWriter(sys.argv[1])\n"
        "writer.open()\n"
        "writer.write(0, bytes(3_000_000))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "set.rec").write_bytes(b"old")
    (tmp_path / "set.idx").write_bytes(b"0\t0\n")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "set.rec")], timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "set.rec").read_bytes() == b"old"
    assert (tmp_path / "set.idx").read_bytes() == b"0\t0\n"


def test_an_old_index_never_stands_beside_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "set.rec").write_bytes(b"old")
    (tmp_path / "set.idx").write_bytes(b"0\t0\n")

    def fail(*_: object) -> None:
        raise OSError("the power fails")

    monkeypatch.setattr("ostinato.data.recordio.writer.write_index", fail)
    with pytest.raises(OSError, match="power"), RecordWriter(tmp_path / "set.rec") as writer:
        writer.write(0, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["set.rec"]
    assert (tmp_path / "set.rec").read_bytes() == encode_record(b"new")


def test_a_key_may_come_once(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "set.rec")
    writer.open()
    writer.write(3, b"a")
    writer.write(3, b"b")
    with pytest.raises(ArgumentValueError, match="key 3 was written twice"):
        writer.commit()
    assert list(tmp_path.iterdir()) == []


def test_a_negative_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError, match="-1"), RecordWriter(tmp_path / "set.rec") as writer:
        writer.write(-1, b"a")


def test_a_writer_is_opened_before_it_writes_and_once(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "set.rec")
    with pytest.raises(StateError, match="not being written"):
        writer.write(0, b"")
    writer.open()
    with pytest.raises(StateError, match="already"):
        writer.open()
    writer.abort()
    writer.abort()
    assert os.listdir(tmp_path) == []
