"""How a record becomes bytes of a RecordIO file.

A record is one or more *chunks*. A chunk is the magic number, a word whose upper 3 bits are a flag and whose lower 29
are the length n of the data, n bytes of data, and zero bytes up to a multiple of 4; all integers little-endian.

Wherever the magic number stands in a record at a multiple of 4 bytes from the record's start, the record is cut there
and the number dropped, so that a reader that lost its way can find the next chunk by looking for the number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ostinato.errors import ArgumentValueError

MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", MAGIC)
HEAD = struct.Struct("<II")
"""Magic number and length word of a chunk."""

WHOLE, FIRST, MIDDLE, LAST = 0, 1, 2, 3
"""The flags: the only chunk of a record, the first of several, one between, the last."""

LENGTH_BITS = 29
MAX_LENGTH = (1 << LENGTH_BITS) - 1
"""Bytes of the longest record."""


def padded(length: int) -> int:
    """The length of a chunk's data with their padding: the next multiple of 4."""
    return (length + 3) & ~3


def split(payload: bytes) -> Iterator[tuple[int, memoryview]]:
    """Cut a record into the data of its chunks.

    :return: flag and data of each chunk. Only the last one's length may be no multiple of 4.
    """
    view = memoryview(payload)
    begin = 0
    for cut in aligned_magics(payload):
        yield MIDDLE if begin else FIRST, view[begin:cut]
        begin = cut + 4
    yield LAST if begin else WHOLE, view[begin:]


def encode_record(payload: bytes) -> bytes:
    """A record as it stands in a file.

    :raises ArgumentValueError: it is longer than :data:`MAX_LENGTH`.
    """
    if len(payload) > MAX_LENGTH:
        raise ArgumentValueError(
            f"A record has {len(payload):,} bytes.", advice=f"At most {MAX_LENGTH:,} fit into a RecordIO file."
        )
    pieces: list[bytes | memoryview] = []
    for flag, data in split(payload):
        pieces += [HEAD.pack(MAGIC, flag << LENGTH_BITS | len(data)), data, bytes(padded(len(data)) - len(data))]
    return b"".join(pieces)


def aligned_magics(data: bytes, begin: int = 0, end: int | None = None) -> Iterator[int]:
    """Where the magic number stands at a multiple of 4 bytes from ``begin``; places in ``data``, ascending."""
    end = len(data) if end is None else end
    found = data.find(MAGIC_BYTES, begin, end)
    while found >= 0:
        if (found - begin) % 4 == 0:
            yield found
            found = data.find(MAGIC_BYTES, found + 4, end)
        else:
            found = data.find(MAGIC_BYTES, found + 1, end)
