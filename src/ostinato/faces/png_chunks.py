"""The chunk list of a PNG file: walking it, adding to it, and the text chunks that we write.

A PNG is an eight byte signature and a list of chunks: length (4 bytes, big-endian), type (4), data, CRC-32 of type and
data (4). Chunks are found by walking that list and never by searching for their letters, which may stand anywhere.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

SIGNATURE = b"\x89PNG\r\n\x1a\n"
END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
"""The last twelve bytes of every whole PNG."""

MAX_CHUNKS = 1_000_000
"""More chunks than this are taken for an attack on the walker."""


class PngError(ValueError):
    """The bytes are not a whole PNG; the message is a reason without a file name."""


@dataclass(frozen=True)
class PngChunk:
    """One chunk by type and position; its data is read only when somebody asks.

    ``start`` counts from the beginning of the file to the length field; ``length`` counts the data bytes alone.
    """

    type: bytes
    start: int
    length: int

    @property
    def data_start(self) -> int:
        """Position of the first data byte."""
        return self.start + 8

    @property
    def end(self) -> int:
        """Position after the CRC."""
        return self.start + 12 + self.length


@dataclass(frozen=True)
class PngHeader:
    """What the ``IHDR`` chunk says."""

    width: int
    height: int
    bit_depth: int
    colour_type: int


def walk_chunks(file: BinaryIO, size: int) -> Iterator[PngChunk]:
    """The chunks of an open file of ``size`` bytes, in order, up to and with ``IEND``.

    :raises PngError: no signature, a chunk that reaches beyond the end, a first chunk that is not ``IHDR``, or no end.
    """
    file.seek(0)
    if file.read(8) != SIGNATURE:
        raise PngError("it is not a PNG file (the signature is missing)")
    position = 8
    for count in range(MAX_CHUNKS):
        file.seek(position)
        head = file.read(8)
        if len(head) < 8:
            break
        length, kind = struct.unpack(">I4s", head)
        chunk = PngChunk(kind, position, length)
        if chunk.end > size:
            name = kind.decode("latin-1")
            raise PngError(f"it is cut off: {name!r} should end at byte {chunk.end}, the file has {size}")
        if (count == 0) != (kind == b"IHDR"):
            raise PngError("its first chunk, and only its first, must be IHDR")
        yield chunk
        if kind == b"IEND":
            return
        position = chunk.end
    raise PngError("it is cut off: the IEND chunk is missing")


def read_chunk(file: BinaryIO, chunk: PngChunk) -> bytes:
    """The chunk's data, its CRC checked.

    :raises PngError: the CRC does not fit.
    """
    file.seek(chunk.start + 4)
    body = file.read(chunk.length + 8)
    if len(body) != chunk.length + 8:
        raise PngError("it became shorter while it was read")
    if zlib.crc32(memoryview(body)[:-4]) != int.from_bytes(body[-4:], "big"):
        raise PngError(f"the checksum of its {chunk.type.decode('latin-1')!r} chunk is wrong: the file is damaged")
    return body[4:-4]


def parse_header(data: bytes) -> PngHeader:
    """The fields of an ``IHDR`` chunk.

    :raises PngError: another length than 13, or a width or height of zero.
    """
    if len(data) != 13:
        raise PngError(f"its IHDR chunk has {len(data)} bytes and not 13")
    width, height, bit_depth, colour_type = struct.unpack(">IIBB", data[:10])
    if not width or not height:
        raise PngError(f"its size is {width} x {height}")
    return PngHeader(width, height, bit_depth, colour_type)


def make_chunk(kind: bytes, data: bytes) -> bytes:
    """A whole chunk: length, type, data, CRC."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


def international_text(keyword: str, text: str) -> bytes:
    """An uncompressed ``iTXt`` chunk without language: any text, UTF-8.

    :param keyword: 1 to 79 Latin-1 characters, for example ``"XML:com.adobe.xmp"``.
    """
    return make_chunk(b"iTXt", _keyword(keyword) + b"\x00\x00\x00\x00\x00" + text.encode("utf-8"))


def latin_text(keyword: str, text: str) -> bytes:
    """A ``tEXt`` chunk: Latin-1 text, which every reader shows. Other letters raise ``UnicodeEncodeError``."""
    return make_chunk(b"tEXt", _keyword(keyword) + b"\x00" + text.encode("latin-1"))


def _keyword(keyword: str) -> bytes:
    encoded = keyword.encode("latin-1")
    if not 1 <= len(encoded) <= 79 or b"\x00" in encoded:
        raise ValueError(f"a PNG keyword has 1 to 79 characters; {keyword!r} has {len(encoded)}")
    return encoded


def insert_before_pixels(png: bytes, chunks: Sequence[bytes]) -> bytes:
    """The PNG with whole chunks (see :func:`make_chunk`) put directly before its first ``IDAT``.

    :raises PngError: ``png`` is not whole or has no ``IDAT``.
    """
    position = 8
    if png[:8] != SIGNATURE:
        raise PngError("it is not a PNG file (the signature is missing)")
    while position + 8 <= len(png):
        length, kind = struct.unpack_from(">I4s", png, position)
        if kind == b"IDAT":
            return b"".join([png[:position], *chunks, png[position:]])
        position += 12 + length
    raise PngError("it holds no pixels (no IDAT chunk)")
