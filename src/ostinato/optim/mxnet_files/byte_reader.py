"""Bytes read in order, none of them twice, and never more than there are."""

from __future__ import annotations

import struct
from typing import NoReturn

from ostinato.errors import BadInputError


class ByteReader:
    """Reads little-endian values from bytes and says where it stands when something is wrong.

    :param data: what is read.
    :param source: what errors call it, usually the file's path.
    :param start: what errors add to positions, for bytes that were cut out of a file.
    """

    def __init__(self, data: bytes | bytearray | memoryview, source: str, start: int = 0) -> None:
        self._data = memoryview(data)
        self.source = source
        self.position = 0
        self._start = start

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self.position

    def take(self, size: int, what: str) -> memoryview:
        """Give the next bytes, without copying them.

        :param size: how many, at least 0.
        :param what: what they are, for the error.
        :raises BadInputError: there are fewer.
        """
        if not 0 <= size <= self.remaining:
            self.refuse(f"{what} should take {size} bytes, and {self.remaining} are left")
        taken = self._data[self.position : self.position + size]
        self.position += size
        return taken

    def number(self, layout: str, what: str) -> int:
        """Give the next integer, in the notation of :mod:`struct`."""
        return int(struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout), what))[0])

    def refuse(self, why: str, *, at: int | None = None) -> NoReturn:
        """Say that the file cannot be read.

        :param why: half a sentence.
        :param at: the position to blame; the present one by default.
        :raises BadInputError: always. Fields: ``path`` and ``offset``.
        """
        offset = self._start + (self.position if at is None else at)
        raise BadInputError(
            f"{self.source} cannot be read: at byte {offset}, {why}.",
            advice="It is damaged, or of another kind than its name says.",
            path=self.source,
            offset=offset,
        )
