from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ostinato.runs.atomic import (
    PIECE_BYTES,
    ChecksumMismatchError,
    FileRecord,
    Files,
    check_file,
    read_bounded,
    set_hook,
)

QUICK = Files(attempts=3, first_wait=0.0)


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was really flushed to the disk, in order."""
    names: list[str] = []
    really = os.fsync

    def note(descriptor: int) -> None:
        names.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        really(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return names


def test_a_replaced_file_is_flushed_before_and_its_folder_after(tmp_path: Path, flushed: list[str]) -> None:
    QUICK.replace(tmp_path / "file", b"content")
    assert flushed == [".tmp-file", tmp_path.name]
    assert (tmp_path / "file").read_bytes() == b"content"
    assert os.listdir(tmp_path) == ["file"]


def test_an_appended_line_is_flushed(tmp_path: Path, flushed: list[str]) -> None:
    QUICK.append_line(tmp_path / "lines", "one")
    assert flushed == ["lines"]


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("whole\nhal")
    QUICK.append_line(tmp_path / "lines", "next")
    assert (tmp_path / "lines").read_text() == "whole\nhal\nnext\n"


def test_a_line_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine\n")
    (tmp_path / "lines").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        QUICK.append_line(tmp_path / "lines", "next")
    assert (tmp_path / "elsewhere").read_text() == "mine\n"


def test_a_flush_that_failed_writes_the_whole_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    really = os.fsync

    def fail_once(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(errno.EBUSY, "busy")
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fail_once)
    written = []

    def pieces() -> list[bytes]:
        written.append(1)
        return [b"ab", b"c"]

    record = QUICK.write(tmp_path / "file", pieces)
    assert len(written) == 2
    assert record.bytes == 3
    check_file(tmp_path / "file", record)


def test_a_flush_that_fails_for_good_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="I/O error"):
        QUICK.write(tmp_path / "file", lambda: [b"x"])
    assert len(calls) == 1


def test_waiting_doubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)

    def busy(moment: str, operation: str, path: Path) -> None:
        raise OSError(errno.EBUSY, "busy")

    set_hook(busy)
    with pytest.raises(OSError, match="busy"):
        Files().rename(tmp_path / "a", tmp_path / "b")
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8]


def test_files_larger_than_a_piece(tmp_path: Path) -> None:
    content = os.urandom(PIECE_BYTES + 3)
    record = QUICK.write(tmp_path / "file", lambda: [content])
    assert (tmp_path / "file").read_bytes() == content
    check_file(tmp_path / "file", record)
    (tmp_path / "file").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ChecksumMismatchError, match="another content"):
        check_file(tmp_path / "file", record)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for name in ("pipe", "link", "folder", "absent", "file/below"):
        with pytest.raises(ChecksumMismatchError):
            check_file(tmp_path / name, FileRecord(1, ""))


def test_small_files_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(11))
    assert read_bounded(tmp_path / "file", 11) == bytes(11)
    with pytest.raises(ChecksumMismatchError, match="more than the 10"):
        read_bounded(tmp_path / "file", 10)


def test_a_tree_is_removed_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / "gone" / "deep").mkdir(parents=True)
    (tmp_path / "gone" / "deep" / "link").symlink_to(tmp_path / "kept")
    QUICK.remove_tree(tmp_path / "gone")
    assert (tmp_path / "kept" / "file").exists()
    assert not (tmp_path / "gone").exists()
