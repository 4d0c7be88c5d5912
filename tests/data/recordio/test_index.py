from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.data.recordio.index import read_index, render_index
from ostinato.errors import RecordError


def _read(folder: Path, content: bytes):
    path = folder / "set.idx"
    path.write_bytes(content)
    return read_index(path, record_bytes=100)


def test_keys_come_in_any_order(tmp_path: Path) -> None:
    index = _read(tmp_path, b"1\t0\n2\t40\n0\t80\n")
    assert index.keys.tolist() == [1, 2, 0]
    assert index.offsets.tolist() == [0, 40, 80]
    assert index.oddities == ()
    assert render_index(index) == b"1\t0\n2\t40\n0\t80\n"


def test_line_ends_and_byte_order_marks_of_other_systems_are_understood_and_mentioned(tmp_path: Path) -> None:
    index = _read(tmp_path, b"\xef\xbb\xbf1\t0\r\n2\t40\r\n")
    assert index.keys.tolist() == [1, 2]
    assert "byte order mark" in index.oddities[0]
    assert "CR and LF" in index.oddities[1]


def test_a_last_line_without_end_is_mentioned(tmp_path: Path) -> None:
    assert "cut off" in _read(tmp_path, b"1\t0\n2\t4").oddities[0]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty"),
        (b"1\t0\n2 40\n", r"line 2 is no key, tabulator and byte offset: '2 40'"),
        (b"1\t0\n\n2\t4\n", "line 2"),
        (b"1\t0\nx\t4\n", "line 2"),
        (b"1\t-4\n", "line 1"),
        (b"1\t1_0\n", "line 1"),
        (b"1\t" + b"9" * 30 + b"\n", "line 1"),
        (b"\x00" * 500, "line 1"),
        (b"<html>\n", "line 1"),
        (b"1\t0\n2\t40\n1\t80\n", "key 1 is there twice"),
        (b"1\t0\n2\t100\n", "line 2 sends key 2 to byte 100, and the record file has 100"),
    ],
)
def test_an_index_that_makes_no_sense_is_named_with_the_line(tmp_path: Path, content: bytes, text: str) -> None:
    with pytest.raises(RecordError, match=text) as caught:
        _read(tmp_path, content)
    assert caught.value.fields["path"] == str(tmp_path / "set.idx")


@given(
    st.lists(
        st.tuples(st.integers(0, 10**18 - 1), st.integers(0, 99)),
        min_size=1,
        max_size=20,
        unique_by=lambda each: each[0],
    )
)
def test_the_size_of_the_blocks_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.mktemp("index") / "set.idx"
    path.write_text("".join(f"{key}\t{offset}\n" for key, offset in lines))
    with pytest.MonkeyPatch.context() as patch:
        for block in (70, 10_000):
            patch.setattr("ostinato.data.recordio.index._BLOCK", block)
            index = read_index(path, record_bytes=100)
            assert list(zip(index.keys.tolist(), index.offsets.tolist(), strict=True)) == lines


def test_an_index_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"none\.idx: it cannot be read"):
        read_index(tmp_path / "none.idx", record_bytes=1)
