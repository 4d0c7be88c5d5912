"""The index of a record file: which key begins at which byte."""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from ostinato.data.recordio.errors import record_error

_MAX_LINE = 64
_MAX_DIGITS = 18
_BLOCK = 16 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class RecordIndex:
    """Keys and offsets of n records, in the order in which they were written. Memory: 16 bytes a record."""

    keys: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    oddities: tuple[str, ...] = ()
    """What other programs may stumble over, though it was understood here."""

    def __len__(self) -> int:
        return len(self.keys)


def index_path(path: str | os.PathLike[str]) -> Path:
    """Where the index of a record file lies by habit: beside it, with the ending ``.idx``."""
    return Path(path).with_suffix(".idx")


def read_index(path: str | os.PathLike[str], *, record_bytes: int) -> RecordIndex:
    """Read an index file: a line for each record with key, tabulator and byte offset.

    :param record_bytes: the size of the record file, beyond which no record begins.
    :raises RecordError: the file cannot be read or makes no sense; names the line. The record file may still be whole.
    """
    try:
        with open(path, "rb") as file:
            parsed = _parse_blocks(file)
            if parsed is None:
                file.seek(0)
                index = _parse_lines(path, file)
            else:
                index = RecordIndex(parsed[:, 0].copy(), parsed[:, 1].copy())
    except OSError as error:
        raise record_error(path, f"it cannot be read ({error.strerror or error})") from error
    if not len(index):
        raise record_error(path, "it is empty")
    _check(path, index, record_bytes)
    return index


def _parse_blocks(file: BinaryIO) -> npt.NDArray[np.int64] | None:
    """(n, 2) keys and offsets, many lines at a time; None unless every line is as it should be."""
    parsed: list[npt.NDArray[np.int64]] = []
    rest = b""
    while block := file.read(_BLOCK):
        block = rest + block
        end = block.rfind(b"\n") + 1
        rest = block[end:]
        characters = np.frombuffer(block, np.uint8, end)
        separators = np.flatnonzero(characters < ord("0"))
        kinds = characters[separators]
        widths = np.diff(separators, prepend=-1) - 1
        if (
            not len(separators)
            or len(rest) > _MAX_LINE
            or (characters > ord("9")).any()
            or (kinds[0::2] != ord("\t")).any()
            or (kinds[1::2] != ord("\n")).any()
            or widths.min() < 1
            or widths.max() > _MAX_DIGITS
        ):
            return None
        parsed.append(np.fromstring(block[:end].decode("ascii"), np.int64, sep=" ").reshape(-1, 2))
    return np.concatenate(parsed) if parsed and not rest else None


def _parse_lines(path: str | os.PathLike[str], file: BinaryIO) -> RecordIndex:
    """Line by line: for an index with oddities, and to name the line where it makes no sense."""
    keys, offsets = array("q"), array("q")
    oddities: list[str] = []
    line = b""
    for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE), b""), 1):
        text = line
        if number == 1 and text.startswith(_BYTE_ORDER_MARK):
            text = text[len(_BYTE_ORDER_MARK) :]
            oddities.append("it begins with a byte order mark")
        if text.endswith(b"\r\n"):
            text = text[:-2]
            if number == 1:
                oddities.append("its lines end with CR and LF")
        key, _, offset = text.rstrip(b"\n").partition(b"\t")
        if not key.isdigit() or not offset.isdigit() or max(len(key), len(offset)) > _MAX_DIGITS:
            shown = line[:40].decode("ascii", "backslashreplace").strip()
            raise record_error(path, f"line {number} is no key, tabulator and byte offset: {shown!r}")
        keys.append(int(key))
        offsets.append(int(offset))
    if keys and not line.endswith(b"\n"):
        oddities.append("its last line has no end, so it may be cut off")
    return RecordIndex(np.array(keys, np.int64), np.array(offsets, np.int64), tuple(oddities))


def render_index(index: RecordIndex) -> bytes:
    """The index as the bytes of a file."""
    return "".join(f"{key}\t{offset}\n" for key, offset in zip(index.keys, index.offsets, strict=True)).encode("ascii")


def _check(path: str | os.PathLike[str], index: RecordIndex, record_bytes: int) -> None:
    ordered = np.sort(index.keys)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        raise record_error(path, f"the key {twice[0]} is there twice", key=int(twice[0]))
    beyond = np.flatnonzero(index.offsets >= record_bytes)
    if len(beyond):
        key, offset = int(index.keys[beyond[0]]), int(index.offsets[beyond[0]])
        raise record_error(
            path,
            f"its line {beyond[0] + 1} sends key {key} to byte {offset:,}, and the record file has "
            f"{record_bytes:,} bytes",
            key=key,
            offset=offset,
        )
