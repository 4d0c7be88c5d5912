"""Decoding pictures by their bytes: PNG, JPEG, BMP and WebP, whatever the file is called.

Sizes are read from the header first, so that a picture that would unfold to gigabytes is refused before it does. Names
never reach the decoder, which cannot open every name a file system allows.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.faces.face_files import face_file_error, open_regular, read_whole
from ostinato.faces.png_chunks import SIGNATURE, PngError, parse_header

PictureFormat = Literal["PNG", "JPEG", "BMP", "WebP"]

MAX_PIXELS = 64 * 1024 * 1024
"""Pixels of the largest picture that is decoded (192 MiB of RGB)."""

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE = frozenset((0x01, *range(0xD0, 0xD9)))
_JPEG_END = b"\xff\xd9"
MAX_JPEG_SEGMENTS = 10_000


class PictureError(ValueError):
    """The bytes are no picture that can be used; the message is a reason without a file name."""


@dataclass(frozen=True)
class PictureSize:
    """What a picture's header says; width and height in pixels as stored."""

    format: PictureFormat
    width: int
    height: int


def picture_size(file: BinaryIO) -> PictureSize:
    """Format and size of an open picture, from its header alone.

    :raises PictureError: another format, or a header that is cut off or makes no sense.
    """
    file.seek(0)
    start = file.read(64)
    try:
        if start[:8] == SIGNATURE:
            header = parse_header(start[16:29])
            size = PictureSize("PNG", header.width, header.height)
        elif start[:3] == b"\xff\xd8\xff":
            size = _jpeg_size(file)
        elif start[:2] == b"BM":
            width, height = struct.unpack_from("<ii", start, 18)
            size = PictureSize("BMP", width, abs(height))
        elif start[:4] == b"RIFF" and start[8:12] == b"WEBP":
            size = _webp_size(start)
        else:
            raise PictureError("it is no PNG, JPEG, BMP or WebP picture" if start else "it is empty")
    except PngError as error:
        raise PictureError(str(error)) from None
    except struct.error:
        raise PictureError("its header is cut off") from None
    if size.width < 1 or size.height < 1:
        raise PictureError(f"its size is {size.width} x {size.height}")
    return size


def _jpeg_size(file: BinaryIO) -> PictureSize:
    position = 2
    for _ in range(MAX_JPEG_SEGMENTS):
        file.seek(position)
        marker, kind, length = struct.unpack(">BBH", file.read(4))
        if marker != 0xFF:
            break
        if kind in _JPEG_BARE or kind == 0xFF:  # no length follows: a lone marker, or a fill byte before one
            position += 1 if kind == 0xFF else 2
        elif kind in _JPEG_FRAMES:
            height, width = struct.unpack(">xHH", file.read(5))
            return PictureSize("JPEG", width, height)
        else:
            position += 2 + length
    raise PictureError("its JPEG header holds no size")


def _webp_size(start: bytes) -> PictureSize:
    kind = start[12:16]
    if len(start) < 30:
        raise PictureError("its header is cut off")
    if kind == b"VP8X":
        width = int.from_bytes(start[24:27], "little") + 1
        height = int.from_bytes(start[27:30], "little") + 1
    elif kind == b"VP8L":
        bits = struct.unpack_from("<I", start, 21)[0]
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", start, 26))
    else:
        raise PictureError("its WebP header is of an unknown kind")
    return PictureSize("WebP", width, height)


def decode_bgr(data: bytes) -> NDArray[np.uint8]:
    """A picture's pixels as (H, W, 3) uint8 in the order blue, green, red; the cheapest form to crop from.

    Grey becomes three equal channels, alpha is dropped, 16 bits are rounded to 8, and a JPEG is turned upright where
    its camera asks for it.

    :raises PictureError: no picture, too large a picture, or damaged or missing data.
    """
    size = picture_size(io.BytesIO(data))
    if size.width * size.height > MAX_PIXELS:
        raise PictureError(f"it has {size.width} x {size.height} pixels; at most {MAX_PIXELS:,} are decoded")
    if size.format == "PNG":
        _check_png(data)
    elif size.format == "JPEG" and data.rfind(_JPEG_END) < data.rfind(b"\xff\xda"):
        # Older versions of the decoder leave the missing part grey and say nothing.
        raise PictureError("it is cut off: the JPEG end mark is missing")
    flags = cv2.IMREAD_UNCHANGED if size.format == "PNG" else cv2.IMREAD_COLOR
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise PictureError(f"its pixels cannot be decoded ({error.err})") from None
    if pixels is None:
        raise PictureError("its pixels cannot be decoded: the file is damaged")
    return three_channels(pixels)


def read_picture(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """A picture file's pixels as (H, W, 3) uint8, RGB; see :func:`decode_bgr` for what is understood.

    :raises FaceFileError: the file cannot be read or decoded. Fields: path, reason.
    """
    try:
        with open_regular(path) as file:
            data = read_whole(file)
        return np.asarray(cv2.cvtColor(decode_bgr(data), cv2.COLOR_BGR2RGB), np.uint8)
    except (PictureError, PngError) as error:
        raise face_file_error(path, str(error)) from None
    except OSError as error:
        raise face_file_error(path, f"it cannot be read ({error.strerror or error})") from error


def _check_png(data: bytes) -> None:
    # The decoder would notice damage too, but by printing to the terminal, and some versions return half a picture.
    view = memoryview(data)
    position = 8
    while position + 12 <= len(data):
        length = int.from_bytes(view[position : position + 4], "big")
        end = position + 12 + length
        if end > len(data):
            break
        if zlib.crc32(view[position + 4 : end - 4]) != int.from_bytes(view[end - 4 : end], "big"):
            kind = data[position + 4 : position + 8].decode("latin-1")
            raise PictureError(f"the checksum of its {kind!r} chunk is wrong: the file is damaged")
        if view[position + 4 : position + 8] == b"IEND":
            return
        position = end
    raise PictureError("it is cut off: the IEND chunk is missing")


def three_channels(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Decoded pixels, (H, W) or (H, W, C), uint8 or uint16, as (H, W, 3) uint8.

    :raises PictureError: pixels of another type.
    """
    if pixels.dtype == np.uint16:
        # 65535 / 255 = 257; adding half of it first rounds, where truncating would darken every pixel.
        eight_bits = ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
    elif pixels.dtype == np.uint8:
        eight_bits = pixels
    else:
        raise PictureError(f"its pixels are {pixels.dtype}; 8 and 16 bits are understood")
    if eight_bits.ndim == 2 or eight_bits.shape[2] == 1:
        return np.repeat(eight_bits.reshape(*eight_bits.shape[:2], 1), 3, axis=2)
    return np.ascontiguousarray(eight_bits[..., :3])
