"""Pictures of any usual format as RGB arrays, with their size known before a single pixel is decoded.

JPEG goes through :mod:`ostinato.data.jpeg`; PNG, PGM and PPM, BMP and WebP through OpenCV. The size is read from the
header first, so that a few bytes cannot ask for gigabytes of memory.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from ostinato.data.jpeg import MAX_PIXELS, ImageError, decode_jpeg, jpeg_size

PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".pgm", ".ppm", ".pnm", ".bmp", ".webp"})
"""Endings of picture files, in lower case."""

_JPEG = b"\xff\xd8\xff"
_PNG = b"\x89PNG\r\n\x1a\n"
_ANCILLARY = 0x20  # the bit of a chunk's first letter that makes it a small one
_PNM = re.compile(rb"P[56]" + rb"(?:\s|#[^\n]*\n)+(\d{1,9})" * 3 + rb"\s")
_PNM_HEADER = 4096  # comments may stand before the size


@dataclass(frozen=True)
class PictureSize:
    """What a picture's header says."""

    format: str
    """``JPEG``, ``PNG``, ``PNM``, ``BMP`` or ``WebP``."""
    height: int
    width: int
    """Pixels as stored; a JPEG that its camera wants turned may come out with the two exchanged."""


def picture_size(data: bytes) -> PictureSize:
    """Format and size of an encoded picture, from its header alone.

    :raises ImageError: another format, or a header that is cut off or makes no sense.
    """
    if not data:
        raise ImageError("it is empty")
    try:
        if data[:3] == _JPEG:
            size = PictureSize("JPEG", *jpeg_size(data))
        elif data[:8] == _PNG:
            width, height = struct.unpack_from(">II", data, 16)
            size = PictureSize("PNG", height, width)
        elif data[:1] == b"P" and (found := _PNM.match(data[:_PNM_HEADER])):
            size = PictureSize("PNM", int(found[2]), int(found[1]))
        elif data[:2] == b"BM":
            width, height = struct.unpack_from("<ii", data, 18)
            size = PictureSize("BMP", abs(height), width)
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            size = _webp_size(data)
        else:
            raise ImageError("it is no JPEG, PNG, PGM, PPM, BMP or WebP picture")
    except struct.error:
        raise ImageError("its header is cut off") from None
    if size.height < 1 or size.width < 1:
        raise ImageError(f"its size is {size.width} x {size.height}")
    return size


def decode_rgb(data: bytes) -> npt.NDArray[np.uint8]:
    """The pixels of an encoded picture, (H, W, 3) uint8 RGB.

    Grey becomes three equal channels, alpha is dropped, 16 bits are rounded to 8, and a JPEG is turned upright where
    its camera asks for it. Memory: the pixels, at most 192 MiB, and as much again while OpenCV's order of channels is
    turned.

    :raises ImageError: no picture, too large a picture, or damaged or missing data.
    """
    if data[:3] == _JPEG:
        return decode_jpeg(data)
    return np.asarray(cv2.cvtColor(decode_bgr(data), cv2.COLOR_BGR2RGB), np.uint8)


def decode_bgr(data: bytes) -> npt.NDArray[np.uint8]:
    """As :func:`decode_rgb`, but in the order blue, green, red: the cheapest form to crop a PNG from."""
    if data[:3] == _JPEG:
        return np.asarray(cv2.cvtColor(decode_jpeg(data), cv2.COLOR_RGB2BGR), np.uint8)
    size = picture_size(data)
    if size.height * size.width > MAX_PIXELS:
        raise ImageError(f"it has {size.width} x {size.height} pixels; at most {MAX_PIXELS:,} are decoded")
    # The decoder would notice damage too, but by printing to the terminal, and some versions return half a picture.
    if size.format == "PNG":
        data = bare_png(data)
    elif len(data) < _least_bytes(data, size):
        raise ImageError("it is cut off")
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise ImageError(f"its pixels cannot be decoded ({error.err})") from None
    if pixels is None:
        raise ImageError("its pixels cannot be decoded: the data are damaged or cut off")
    return three_channels(np.asarray(pixels))


def encode_png(image: npt.NDArray[np.uint8]) -> bytes:
    """A picture as PNG, without loss.

    :param image: (H, W, 3) uint8 RGB.
    """
    encoded, data = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    if not encoded:
        raise ImageError(f"OpenCV cannot write a picture of shape {image.shape} as PNG")
    return data.tobytes()


def three_channels(pixels: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Decoded pixels, (H, W) or (H, W, C), uint8 or uint16, as (H, W, 3) uint8 in the order they have.

    Grey, with or without alpha, becomes three equal channels; alpha is dropped; 16 bits are rounded to 8.

    :raises ImageError: pixels of another type.
    """
    if pixels.dtype == np.uint16:
        # 65535 / 255 = 257; adding half of it first rounds, where truncating would darken every pixel.
        eight_bits = ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
    elif pixels.dtype == np.uint8:
        eight_bits = pixels
    else:
        raise ImageError(f"its pixels are {pixels.dtype}; 8 and 16 bits are understood")
    if eight_bits.ndim == 2 or eight_bits.shape[2] < 3:
        grey = eight_bits if eight_bits.ndim == 2 else eight_bits[:, :, 0]
        return np.asarray(cv2.cvtColor(np.ascontiguousarray(grey), cv2.COLOR_GRAY2RGB), np.uint8)
    return np.ascontiguousarray(eight_bits[:, :, :3])


def bare_png(data: bytes) -> bytes:
    """A PNG without its ancillary chunks, checked against the checksums of all of them.

    Texts, colour profiles and further frames play no part in the pixels here, and a decoder would unpack them: each of
    thousands of chunks of a few KiB may unfold to megabytes.

    :raises ImageError: it is cut off or damaged.
    """
    view = memoryview(data)
    pieces = [view[: len(_PNG)]]
    position = len(_PNG)
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(view[position : position + 4], "big")
        if end > len(data):
            break
        kind = bytes(view[position + 4 : position + 8])
        if zlib.crc32(view[position + 4 : end - 4]) != int.from_bytes(view[end - 4 : end], "big"):
            raise ImageError(f"the checksum of its {kind!r} chunk is wrong: the data are damaged")
        if not kind[0] & _ANCILLARY:
            pieces.append(view[position:end])
        if kind == b"IEND":
            return b"".join(pieces)
        position = end
    raise ImageError("it is cut off: the end mark of a PNG is missing")


def _least_bytes(data: bytes, size: PictureSize) -> int:
    """How long the data of a PNM, BMP or WebP picture are at least, by their header."""
    pixels = size.height * size.width
    if size.format == "PNM" and (header := _PNM.match(data[:_PNM_HEADER])):
        return header.end() + pixels * (1 if data[:2] == b"P5" else 3) * (2 if int(header[3]) > 255 else 1)
    if size.format == "BMP" and len(data) >= 34:
        start, bits, compression = struct.unpack_from("<10xI14xHI", data)
        return start + (size.width * bits + 31) // 32 * 4 * size.height if compression == 0 else 0
    if size.format == "WebP":
        return 8 + int.from_bytes(data[4:8], "little")
    return pixels


def _webp_size(data: bytes) -> PictureSize:
    kind = data[12:16]
    if len(data) < 30:
        raise ImageError("its header is cut off")
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    elif kind == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    else:
        raise ImageError("its WebP header is of an unknown kind")
    return PictureSize("WebP", height, width)
