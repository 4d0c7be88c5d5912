from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.data.recordio import Damage, Located, RecordFile
from ostinato.data.recordio.chunks import MAGIC, MAGIC_BYTES, encode_record
from ostinato.errors import RecordError, StateError

_payloads = st.lists(st.one_of(st.binary(max_size=9), st.just(MAGIC_BYTES), st.just(bytes(4))), max_size=8).map(
    b"".join
)


def _chunk(flag: int, data: bytes, length: int | None = None) -> bytes:
    word = flag << 29 | (len(data) if length is None else length)
    return struct.pack("<II", MAGIC, word) + data + bytes(-len(data) % 4)


def _file(folder: Path, content: bytes) -> RecordFile:
    path = folder / "set.rec"
    path.write_bytes(content)
    file = RecordFile(path)
    file.open()
    return file


def _offsets(payloads: list[bytes]) -> list[int]:
    offsets, at = [], 0
    for payload in payloads:
        offsets.append(at)
        at += len(encode_record(payload))
    return offsets


@given(st.lists(_payloads, min_size=1, max_size=6))
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("records") / "set.rec"
    path.write_bytes(b"".join(map(encode_record, payloads)))
    with RecordFile(path) as file:
        offsets = _offsets(payloads)
        assert [file.read(offset) for offset in offsets] == payloads
        walked = [found for found in file.walk(7) if isinstance(found, Located)]
        assert [(found.offset, found.length, found.head) for found in walked] == [
            (offset, len(payload), payload[:7]) for offset, payload in zip(offsets, payloads, strict=True)
        ]


def test_large_records_and_blocks_smaller_than_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.data.recordio.reader._FIRST_READ", 16)
    monkeypatch.setattr("ostinato.data.recordio.reader._BLOCK", 64)
    payloads = [os.urandom(200), b"", os.urandom(3), b"x" * 56, b"abcd" + MAGIC_BYTES + os.urandom(90)]
    with_split = b"".join(map(encode_record, payloads))
    file = _file(tmp_path, with_split)
    assert [file.read(offset) for offset in _offsets(payloads)] == payloads
    assert [(found.offset, found.length, found.head) for found in file.walk(20) if isinstance(found, Located)] == [
        (offset, len(payload), payload[:20]) for offset, payload in zip(_offsets(payloads), payloads, strict=True)
    ]
    file.close()


_FAULTS = {
    "short head": (b"\x0a\x23\xd7\xce\x01", 0, r"ends inside the head of a chunk \(5 of 8 bytes"),
    "beyond the end": (_chunk(0, b"abcd"), 12, "the file ends at byte 12"),
    "wrong magic": (b"\x00" * 16, 4, "no chunk begins at byte 4: the bytes there are 00 00 00 00"),
    "data cut off": (_chunk(0, b"abcd", 9), 0, "cut off: it has 9 bytes, and the file ends after 4"),
    "padding cut off": (_chunk(0, b"abcde")[:-1], 0, "cut off"),
    "next record swallowed": (
        _chunk(0, b"abcd", 16) + _chunk(0, b"next"),
        0,
        "wrong length, 16: another begins at byte 12",
    ),
    "hostile length": (_chunk(0, b"abcd", 2**29 - 1), 0, "cut off: it has 536,870,911 bytes"),
    "last without first": (_chunk(3, b"abcd"), 0, r"continues a record \(flag 3\) that has no beginning"),
    "middle without first": (_chunk(2, b"abcd"), 0, r"flag 2\) that has no beginning"),
    "whole inside a split": (_chunk(1, b"abcd") + _chunk(0, b"efgh"), 0, r"begins at byte 12 inside a split record"),
    "first inside a split": (_chunk(1, b"abcd") + _chunk(1, b"efgh"), 0, r"begins at byte 12 inside a split record"),
    "flag that does not exist": (_chunk(5, b"abcd"), 0, "flag 5, which does not exist"),
    "flag 7 inside a split": (_chunk(1, b"abcd") + _chunk(7, b""), 0, "byte 12 has the flag 7"),
    "end within a split": (_chunk(1, b"abcd") + _chunk(2, b"efgh"), 0, "ends in the middle of a split record"),
    "magic lost in a split": (_chunk(1, b"abcd") + bytes(12), 0, "no chunk begins at byte 12"),
}


@pytest.mark.parametrize("fault", _FAULTS)
def test_every_kind_of_damage_is_an_error_with_file_key_and_byte(tmp_path: Path, fault: str) -> None:
    content, offset, text = _FAULTS[fault]
    with closing(_file(tmp_path, content)) as file:
        with pytest.raises(RecordError, match=text) as caught:
            file.read(offset, key=77)
        if fault != "next record swallowed":  # which only shows in the data
            with pytest.raises(RecordError, match=text):
                file.chunks(offset)
    fields = caught.value.fields
    assert (fields["path"], fields["key"], fields["offset"]) == (str(tmp_path / "set.rec"), 77, offset)
    assert f"set.rec (key 77, byte {offset})" in str(caught.value)


_FILLED = {"beyond the end", "short head", "padding cut off"}  # no fault any more when something follows


@pytest.mark.parametrize("fault", [name for name in _FAULTS if name not in _FILLED])
def test_a_walk_names_damage_and_goes_on_after_it(tmp_path: Path, fault: str) -> None:
    content, offset, _ = _FAULTS[fault]
    before, after = encode_record(b"before"), encode_record(b"the one after")
    content = before + content[offset:]
    content += bytes(-len(content) % 4)
    file = _file(tmp_path, content + after + encode_record(b"the last"))
    found = list(file.walk(64))
    damage = [each for each in found if isinstance(each, Damage)]
    heads = [each.head for each in found if isinstance(each, Located)]
    assert heads[0] == b"before"
    assert damage[0].offset == len(before)
    assert heads[-2:] == [b"the one after", b"the last"]
    assert damage[-1].end <= len(content)
    file.close()


def test_damage_at_the_end_ends_the_walk(tmp_path: Path) -> None:
    file = _file(tmp_path, encode_record(b"whole") + encode_record(b"cut off here")[:-6])
    whole, damage = file.walk(64)
    assert isinstance(whole, Located)
    assert isinstance(damage, Damage)
    assert (damage.offset, damage.end) == (16, file.size)
    file.close()


def test_the_next_record_is_found_blocks_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.data.recordio.reader._BLOCK", 32)
    content = b"\x01" * 60 + encode_record(b"found") + encode_record(b"too")
    file = _file(tmp_path, content)
    assert [each.head for each in file.walk(8) if isinstance(each, Located)] == [b"found", b"too"]
    file.close()


@given(st.binary(max_size=120), st.lists(_payloads, max_size=4), st.data())
def test_no_bytes_at_all_make_a_walk_fail_or_hang(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, payloads: list[bytes], data: st.DataObject
) -> None:
    content = bytearray(b"".join(map(encode_record, payloads)) + junk)
    for _ in range(data.draw(st.integers(0, 5)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("walk") / "set.rec"
    path.write_bytes(content)
    with RecordFile(path) as file:
        at = 0
        for found in file.walk(8):
            assert found.offset == at or found.offset > at
            at = found.end if isinstance(found, Damage) else found.offset + 8
            if isinstance(found, Located):
                assert len(file.read(found.offset)) == found.length


def test_threads_may_share_a_file(tmp_path: Path) -> None:
    payloads = [os.urandom(3000) for _ in range(50)]
    file = _file(tmp_path, b"".join(map(encode_record, payloads)))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(file.read, _offsets(payloads) * 4)) == payloads * 4
    file.close()


def test_a_forked_process_may_read_on(tmp_path: Path) -> None:
    payloads = [b"one", b"two", b"three"]
    (tmp_path / "set.rec").write_bytes(b"".join(map(encode_record, payloads)))
    program = (
        "import os, sys\n"
        "from ostinato.data.recordio import RecordFile\n"
        "file = RecordFile(sys.argv[1])\n"
        "file.open()\n"
        "offsets = list(map(int, sys.argv[2:]))\n"
        "child = os.fork()\n"
        "for _ in range(200):\n"
        "    assert [file.read(offset) for offset in offsets] == [b'one', b'two', b'three']\n"
        "sys.exit(os.waitpid(child, 0)[1] if child else 0)\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "set.rec"), *map(str, _offsets(payloads))]
    assert subprocess.run(words, timeout=120).returncode == 0


def test_a_pickled_copy_opens_the_file_again(tmp_path: Path) -> None:
    file = _file(tmp_path, encode_record(b"one"))
    copy = pickle.loads(pickle.dumps(file))
    file.close()
    assert copy.read(0) == b"one"
    copy.close()
    assert pickle.loads(pickle.dumps(file)).path == file.path


def test_a_closed_file_is_not_read(tmp_path: Path) -> None:
    file = _file(tmp_path, encode_record(b"one"))
    with pytest.raises(StateError, match="open already"):
        file.open()
    file.close()
    file.close()
    with pytest.raises(StateError, match="closed"):
        file._pread(1, 0)


def test_a_file_that_is_not_there_or_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no\.rec: it cannot be opened \(No such file"):
        RecordFile(tmp_path / "no.rec").open()
    os.mkfifo(tmp_path / "pipe.rec")
    with pytest.raises(RecordError, match="no ordinary file"):
        RecordFile(tmp_path / "pipe.rec").open()


def test_names_with_line_breaks_are_shown_on_one_line(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"a\\nb\.rec: it cannot"):
        RecordFile(tmp_path / "a\nb.rec").open()
