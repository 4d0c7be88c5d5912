from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import cv2
import numpy as np
import pytest

from ostinato.data import pictures
from ostinato.data.jpeg import ImageError
from ostinato.data.pictures import decode_bgr
from ostinato.errors import FaceFileError
from ostinato.faces.pictures import picture_size, read_picture
from ostinato.faces.png_chunks import make_chunk

COLOURS = np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)


def _encode(suffix: str, image: np.ndarray, *options: int) -> bytes:
    return cv2.imencode(suffix, image, list(options))[1].tobytes()


@pytest.mark.parametrize(
    ("suffix", "format", "options"),
    [
        (".png", "PNG", ()),
        (".bmp", "BMP", ()),
        (".jpg", "JPEG", ()),
        (".jpg", "JPEG", (cv2.IMWRITE_JPEG_PROGRESSIVE, 1)),
        (".webp", "WebP", (cv2.IMWRITE_WEBP_QUALITY, 80)),
        (".webp", "WebP", (cv2.IMWRITE_WEBP_QUALITY, 101)),
    ],
)
def test_size_comes_from_the_header(suffix: str, format: str, options: tuple[int, ...]) -> None:
    data = _encode(suffix, COLOURS, *options)
    size = picture_size(io.BytesIO(data))
    assert (size.format, size.width, size.height) == (format, 40, 24)
    assert decode_bgr(data).shape == (24, 40, 3)


def test_webp_with_alpha_has_a_size() -> None:
    data = _encode(".webp", np.dstack([COLOURS, COLOURS[..., :1]]), cv2.IMWRITE_WEBP_QUALITY, 80)
    size = picture_size(io.BytesIO(data))
    assert (size.width, size.height) == (40, 24)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"GIF89a" + bytes(100),
        b"%PDF-1.7",
        b"BM",
        b"BM" + bytes(60),
        b"RIFF1234WEBP",
        b"RIFF1234WEBPVP8X",
        b"RIFF1234WEBPABCD" + bytes(40),
        b"\x89PNG\r\n\x1a\n",
        b"\x89PNG\r\n\x1a\n" + make_chunk(b"IHDR", bytes(13)),
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xe0\x00\x10",
        b"\xff\xd8" + b"\xff\xe0\x00\x02" * 20_000,
        b"\xff\xd8" + b"\xff" * 50_000,
        b"\xff\xd8\xff\xe0\x00\x02abcdefgh",
    ],
)
def test_what_is_no_picture_is_refused(data: bytes) -> None:
    with pytest.raises(ImageError):
        picture_size(io.BytesIO(data))
    with pytest.raises(ImageError):
        decode_bgr(data)


def test_a_picture_of_gigabytes_is_refused_before_it_unfolds() -> None:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + make_chunk(b"IHDR", header) + make_chunk(b"IDAT", b"") + make_chunk(b"IEND", b"")
    with pytest.raises(ImageError, match="60000 x 60000"):
        decode_bgr(data)


def test_a_file_that_is_too_large_to_be_a_picture_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "endless.bmp"
    path.write_bytes(_encode(".bmp", COLOURS))
    os.truncate(path, 2**31)  # a hole; reading it would fill the memory
    with pytest.raises(FaceFileError, match=r"endless\.bmp .*2,147,483,648 bytes; at most"):
        read_picture(path)


def test_the_limit_is_a_number_of_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_PIXELS", 24 * 40 - 1)
    with pytest.raises(ImageError, match="at most 959"):
        decode_bgr(_encode(".png", COLOURS))


def test_grey_becomes_three_equal_channels() -> None:
    pixels = decode_bgr(_encode(".png", COLOURS[..., 0]))
    assert np.array_equal(pixels, np.repeat(COLOURS[..., :1], 3, axis=2))


def test_alpha_is_dropped() -> None:
    pixels = decode_bgr(_encode(".png", np.dstack([COLOURS, COLOURS[..., :1]])))
    assert np.array_equal(pixels, COLOURS)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_sixteen_bits_are_rounded(channels: int) -> None:
    values = np.arange(0, 65536, 13, dtype=np.uint16)[:5040].reshape(60, 84)
    deep = np.stack([values, values[::-1], values.T.reshape(60, 84), values], axis=2)[..., :channels]
    pixels = decode_bgr(_encode(".png", deep if channels > 1 else deep[..., 0]))
    expected = np.rint(deep[..., :3].astype(np.float64) / 65535 * 255)
    assert np.array_equal(pixels, np.broadcast_to(expected, pixels.shape))


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_every_cut_is_noticed(suffix: str) -> None:
    data = _encode(suffix, np.tile(COLOURS, (4, 4, 1)))
    for end in range(8, len(data) - 1, max(1, len(data) // 50)):
        with pytest.raises(ImageError):
            decode_bgr(data[:end])
    with pytest.raises(ImageError, match="cut off"):
        decode_bgr(data[: len(data) // 2])


def test_flipped_bits_in_a_png_are_noticed(capfd: pytest.CaptureFixture[str]) -> None:
    data = _encode(".png", COLOURS)
    for position in range(8, len(data), 37):
        broken = bytearray(data)
        broken[position] ^= 0x10
        with pytest.raises(ImageError):
            decode_bgr(bytes(broken))
    assert capfd.readouterr() == ("", "")


def test_pixels_that_do_not_unpack_are_refused() -> None:
    header = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + make_chunk(b"IHDR", header) + make_chunk(b"IDAT", b"xx") + make_chunk(b"IEND", b"")
    with pytest.raises(ImageError, match="cannot be decoded"):
        decode_bgr(data)


def test_the_order_of_colours_is_the_same_for_every_format() -> None:
    blue = np.full((16, 16, 3), (200, 60, 20), np.uint8)
    for suffix in (".png", ".bmp", ".webp", ".jpg"):
        assert np.abs(decode_bgr(_encode(suffix, blue)).astype(int) - blue).max() <= 4


def test_reading_gives_rgb_and_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bmp"
    path.write_bytes(_encode(".bmp", COLOURS))
    assert np.array_equal(read_picture(path), COLOURS[..., ::-1])
    path.write_bytes(b"no picture")
    with pytest.raises(FaceFileError, match=r"a\.bmp cannot be used: it is no JPEG, PNG"):
        read_picture(path)
    with pytest.raises(FaceFileError, match="No such file"):
        read_picture(tmp_path / "missing.png")
