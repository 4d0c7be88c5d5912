from __future__ import annotations

import io
import struct
import zlib

import cv2
import numpy as np
import pytest

from ostinato.faces.png_chunks import (
    PngError,
    insert_before_pixels,
    international_text,
    latin_text,
    make_chunk,
    parse_header,
    read_chunk,
    walk_chunks,
)


@pytest.fixture
def png() -> bytes:
    image = np.random.default_rng(0).integers(0, 255, (64, 48, 3), np.uint8)
    return cv2.imencode(".png", image)[1].tobytes()


def _types(data: bytes) -> list[bytes]:
    return [chunk.type for chunk in walk_chunks(io.BytesIO(data), len(data))]


def test_walks_from_header_to_end(png: bytes) -> None:
    types = _types(png)
    assert types[0] == b"IHDR"
    assert types[-1] == b"IEND"
    assert set(types[1:-1]) >= {b"IDAT"}


def test_header_and_checksum_are_read(png: bytes) -> None:
    file = io.BytesIO(png)
    first = next(walk_chunks(file, len(png)))
    header = parse_header(read_chunk(file, first))
    assert (header.width, header.height, header.bit_depth, header.colour_type) == (48, 64, 8, 2)
    broken = bytearray(png)
    broken[18] ^= 1
    with pytest.raises(PngError, match="checksum of its 'IHDR'"):
        read_chunk(io.BytesIO(bytes(broken)), first)


def test_every_cut_is_noticed(png: bytes) -> None:
    for end in [*range(0, 60), *range(60, len(png), 97), len(png) - 1]:
        with pytest.raises(PngError):
            _types(png[:end])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "signature"),
        (b"GIF89a" + bytes(100), "signature"),
        (b"\x89PNG\r\n\x1a\n" + make_chunk(b"IDAT", b""), "first chunk"),
        (b"\x89PNG\r\n\x1a\n" + make_chunk(b"IHDR", bytes(13)) * 2, "first chunk"),
        (b"\x89PNG\r\n\x1a\n" + struct.pack(">I4s", 0xFFFFFFFF, b"IHDR") + bytes(20), "cut off"),
    ],
)
def test_other_files_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(PngError, match=reason):
        _types(data)


@pytest.mark.parametrize("data", [bytes(12), bytes(14), struct.pack(">IIBB", 0, 5, 8, 2) + bytes(3)])
def test_headers_without_a_size_are_refused(data: bytes) -> None:
    with pytest.raises(PngError):
        parse_header(data)


def test_texts_go_before_the_pixels_and_leave_the_picture_alone(png: bytes) -> None:
    texts = [international_text("XML:com.adobe.xmp", "<x>ä</x>"), latin_text("Comment", "synthetic")]
    marked = insert_before_pixels(png, texts)
    types = _types(marked)
    assert types[types.index(b"IDAT") - 2 : types.index(b"IDAT")] == [b"iTXt", b"tEXt"]
    before, after = (cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) for data in (png, marked))
    assert np.array_equal(before, after)


def test_the_letters_idat_elsewhere_do_not_mislead(png: bytes) -> None:
    marked = insert_before_pixels(
        insert_before_pixels(png, [latin_text("Comment", "IDAT IDAT")]), [latin_text("A", "b")]
    )
    types = _types(marked)
    assert types[types.index(b"IDAT") - 1] == b"tEXt"
    assert types.count(b"tEXt") == 2


def test_layout_of_an_international_text() -> None:
    data = b"faceswap\x00\x00\x00\x00\x00{}"
    expected = struct.pack(">I", len(data)) + b"iTXt" + data + struct.pack(">I", zlib.crc32(b"iTXt" + data))
    assert international_text("faceswap", "{}") == expected


@pytest.mark.parametrize("keyword", ["", "x" * 80, "a\x00b"])
def test_keywords_that_png_does_not_allow_are_refused(keyword: str) -> None:
    with pytest.raises(ValueError, match="keyword"):
        latin_text(keyword, "")


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\n" + make_chunk(b"IHDR", bytes(13))])
def test_nothing_is_inserted_where_there_are_no_pixels(data: bytes) -> None:
    with pytest.raises(PngError):
        insert_before_pixels(data, [])
