"""Reading records of a RecordIO file at known places, and walking over all of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ostinato.data.file_names import shown_name
from ostinato.data.recordio.chunks import (
    FIRST,
    HEAD,
    LAST,
    LENGTH_BITS,
    MAGIC,
    MAGIC_BYTES,
    MAX_LENGTH,
    MIDDLE,
    WHOLE,
    aligned_magics,
    padded,
)
from ostinato.data.recordio.errors import record_error
from ostinato.errors import StateError

_FIRST_READ = 16 * 1024  # the usual picture of 112 x 112 pixels comes with one call of the operating system
_BLOCK = 8 * 1024 * 1024  # what a walk over the file reads at a time


@dataclass(frozen=True)
class Chunk:
    """The head of a chunk, without its data."""

    offset: int
    """Byte of its magic number in the file."""
    flag: int
    length: int

    @property
    def end(self) -> int:
        """The byte after its padding."""
        return self.offset + HEAD.size + padded(self.length)


class Located(NamedTuple):  # millions of these are made, and a named tuple is made in a third of the time
    """A record that a walk over the file found."""

    offset: int
    length: int
    """Bytes of the record."""
    head: bytes
    """Its first bytes, as many as were asked for or there are."""


@dataclass(frozen=True)
class Damage:
    """A part of the file that holds no record that can be read."""

    offset: int
    """Where the damaged record begins."""
    end: int
    """Where the next record was found, or the end of the file."""
    reason: str


class RecordFile:
    """A RecordIO file opened for reading.

    Every read says where in the file it wants to read, so threads may share an object, and processes that were forked
    from this one may use it too. A pickled copy opens the file again.

    :param path: the ``.rec`` file; opened by :meth:`open`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._descriptor: int | None = None
        self._size = 0

    # --- opening and closing -----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the file.

        :raises RecordError: it is not there, no ordinary file, or may not be read.
        """
        if self._descriptor is not None:
            raise StateError(f"{self.path} is open already.")
        try:
            # A pipe by this name would block for ever; O_NONBLOCK keeps the open itself from waiting.
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise record_error(self.path, f"it cannot be opened ({error.strerror or error})") from error
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            os.close(descriptor)
            raise record_error(self.path, "it is no ordinary file")
        self._descriptor, self._size = descriptor, facts.st_size

    def close(self) -> None:
        """Close the file. May be called more than once."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> RecordFile:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "is_open": self._descriptor is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        RecordFile.__init__(self, state["path"])
        if state["is_open"]:
            self.open()

    @property
    def size(self) -> int:
        """Bytes of the open file."""
        return self._size

    # --- single records ----------------------------------------------------------------------------------------------

    def read(self, offset: int, *, key: int | None = None) -> bytes:
        """The record that begins at a byte.

        :param key: for error messages.
        :raises RecordError: no record begins there, or it is damaged. Fields: path, key, offset, reason.
        """
        block = self._pread(_FIRST_READ, offset)
        try:
            first = self._chunk(offset, block)
            if first.flag == WHOLE:
                return self._data(first, block)
            pieces = [self._data(first, block)]
            total = first.length
            for chunk in self._rest(first):
                total += 4 + chunk.length
                if total > MAX_LENGTH:
                    raise _Damaged(f"it is split into chunks of more than {MAX_LENGTH:,} bytes together")
                pieces.append(self._data(chunk, b""))
            return MAGIC_BYTES.join(pieces)
        except _Damaged as damage:
            raise record_error(self.path, str(damage), key=key, offset=offset) from None

    def chunks(self, offset: int) -> list[Chunk]:
        """The chunks of the record that begins at a byte.

        :raises RecordError: as :meth:`read`.
        """
        try:
            first = self._chunk(offset, b"")
            return [first, *self._rest(first)]
        except _Damaged as damage:
            raise record_error(self.path, str(damage), offset=offset) from None

    def read_bytes(self, count: int, offset: int) -> bytes:
        """Bytes of the file as they are; fewer than ``count`` where it ends."""
        return self._pread(count, offset)

    # --- all records -------------------------------------------------------------------------------------------------

    def walk(self, head_bytes: int = 0) -> Iterator[Located | Damage]:
        """Go over the file from its beginning, without an index.

        After damage the walk goes on at the next place where a record plausibly begins.

        :param head_bytes: how many of a record's first bytes are handed out.
        """
        block, start = b"", 0
        offset = 0
        while offset < self._size:
            wanted = HEAD.size + head_bytes
            if offset < start or offset + wanted > start + len(block):
                block, start = self._pread(_BLOCK, offset), offset
            at = offset - start
            if at + HEAD.size <= len(block):
                magic, length = HEAD.unpack_from(block, at)  # the length, where the flag is 0 as almost always
                end = offset + HEAD.size + padded(length)
                begin = at + HEAD.size
                # What may hold the number of a swallowed head, or lies beyond this block, is looked at more closely.
                if (
                    magic == MAGIC
                    and length <= MAX_LENGTH
                    and begin + length <= len(block)
                    and end <= self._size
                    and block.find(MAGIC_BYTES, begin, begin + length) < 0
                ):
                    yield Located(offset, length, block[begin : begin + min(head_bytes, length)])
                    offset = end
                    continue
            try:
                record, offset = self._walk_closely(_parse(block, at, offset, self._size), head_bytes)
                yield record
            except _Damaged as damage:
                end = self._next_record(offset + 4)
                yield Damage(offset, end, str(damage))
                offset = end

    def _walk_closely(self, first: Chunk, head_bytes: int) -> tuple[Located, int]:
        head = self._data(first, b"")[:head_bytes]
        length, end = first.length, first.end
        for chunk in self._rest(first):
            data = self._data(chunk, b"")
            if len(head) < head_bytes:
                head = (head + MAGIC_BYTES + data[:head_bytes])[:head_bytes]
            length += 4 + chunk.length
            end = chunk.end
        return Located(first.offset, length, head), end

    def _next_record(self, offset: int) -> int:
        """Where a record begins at ``offset`` or after it: a head with data that end before another head or the end."""
        offset = (offset + 3) & ~3  # chunks begin at multiples of 4
        while offset < self._size:
            block = self._pread(_BLOCK, offset)
            at = block.find(MAGIC_BYTES)
            while at >= 0:
                if at % 4 == 0 and self._is_record(offset + at):
                    return offset + at
                at = block.find(MAGIC_BYTES, at + 1)
            if len(block) < _BLOCK:
                break
            offset += len(block)  # a multiple of 4, so no number that counts lies across the end of the block
        return self._size

    def _is_record(self, offset: int) -> bool:
        try:
            chunk = self._chunk(offset, b"")
        except _Damaged:
            return False
        if chunk.end >= self._size:
            return chunk.end == self._size
        return self._pread(4, chunk.end) == MAGIC_BYTES

    # --- chunks ------------------------------------------------------------------------------------------------------

    def _rest(self, first: Chunk) -> Iterator[Chunk]:
        """The chunks after the first one."""
        _check_first(first)
        chunk = first
        while chunk.flag not in (WHOLE, LAST):
            offset = chunk.end
            if offset >= self._size:
                raise _Damaged("the file ends in the middle of a split record")
            chunk = _parse(self._pread(HEAD.size, offset), 0, offset, self._size)
            if chunk.flag not in (MIDDLE, LAST):
                raise _Damaged(f"a record begins at byte {offset:,} inside a split record (flag {chunk.flag})")
            yield chunk

    def _chunk(self, offset: int, block: bytes) -> Chunk:
        if offset < 0 or offset >= self._size:
            raise _Damaged(f"the file ends at byte {self._size:,}")
        chunk = _parse(block or self._pread(HEAD.size, offset), 0, offset, self._size)
        _check_first(chunk)
        return chunk

    def _data(self, chunk: Chunk, block: bytes) -> bytes:
        if HEAD.size + chunk.length <= len(block):
            data = block[HEAD.size : HEAD.size + chunk.length]
        else:
            data = self._pread(chunk.length, chunk.offset + HEAD.size)
            if len(data) != chunk.length:
                raise _Damaged(f"the file was cut while it was read (byte {chunk.offset + len(data):,})")
        for place in aligned_magics(data):
            raise _swallowed(chunk, chunk.offset + HEAD.size + place)
        return data

    def _pread(self, count: int, offset: int) -> bytes:
        if self._descriptor is None:
            raise StateError(f"{shown_name(self.path)} is closed.", advice="Call open() first.")
        try:
            data = os.pread(self._descriptor, count, max(offset, 0))
            while len(data) < count and (more := os.pread(self._descriptor, count - len(data), offset + len(data))):
                data += more
        except OSError as error:
            raise record_error(self.path, f"it cannot be read ({error.strerror or error})", offset=offset) from error
        return data


class _Damaged(Exception):
    """A record cannot be read; the text is the reason."""


def _parse(block: bytes, at: int, offset: int, size: int) -> Chunk:
    """The chunk whose head stands at ``at`` in ``block``, which is byte ``offset`` of a file of ``size`` bytes."""
    if len(block) - at < HEAD.size:
        left = max(0, size - offset)
        raise _Damaged(f"the file ends inside the head of a chunk ({left} of {HEAD.size} bytes at byte {offset:,})")
    magic, word = HEAD.unpack_from(block, at)
    if magic != MAGIC:
        found = block[at : at + 4].hex(" ").upper()
        raise _Damaged(f"no chunk begins at byte {offset:,}: the bytes there are {found}, not 0A 23 D7 CE")
    chunk = Chunk(offset, word >> LENGTH_BITS, word & MAX_LENGTH)
    if chunk.flag > LAST:
        raise _Damaged(f"the chunk at byte {offset:,} has the flag {chunk.flag}, which does not exist")
    if chunk.end > size:
        raise _Damaged(
            f"the chunk at byte {offset:,} is cut off: it has {chunk.length:,} bytes, and the file ends after "
            f"{max(0, size - offset - HEAD.size):,}"
        )
    return chunk


def _swallowed(chunk: Chunk, place: int) -> _Damaged:
    # A writer never puts the number there; the length is wrong, and what stands there is the head of another chunk.
    return _Damaged(
        f"the chunk at byte {chunk.offset:,} has a wrong length, {chunk.length:,}: another begins at byte {place:,}"
    )


def _check_first(chunk: Chunk) -> None:
    if chunk.flag not in (WHOLE, FIRST):
        raise _Damaged(
            f"the chunk at byte {chunk.offset:,} continues a record (flag {chunk.flag}) that has no beginning"
        )
