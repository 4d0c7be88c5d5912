"""JPEG pictures, decoded and encoded by simplejpeg.

The decoder lets go of the interpreter lock, so several threads decode at the same time.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg

MAX_PIXELS = 64 * 1024 * 1024
"""Pixels of the largest picture that is decoded (192 MiB of RGB)."""

_SCAN, _END = b"\xff\xda", b"\xff\xd9"
_EXIF = b"Exif\x00\x00"
_EXIF_REACH = 4096  # its segment comes first, at most after a small one


class ImageError(ValueError):
    """Bytes are no picture that can be used. The message is a reason that goes after "cannot be used:"."""


def jpeg_size(data: bytes | memoryview) -> tuple[int, int]:
    """Height and width in pixels, as stored, from the header alone.

    :raises ImageError: no JPEG header.
    """
    height, width, _ = _header(data)
    return height, width


def decode_jpeg(data: bytes | memoryview) -> npt.NDArray[np.uint8]:
    """The pixels, (H, W, 3) uint8 RGB.

    Grey becomes three equal channels; a picture is turned upright where its camera asks for it. A picture that breaks
    off or whose data are damaged is refused, where most programs give a half-grey one.

    :raises ImageError: no JPEG, damaged, or more than :data:`MAX_PIXELS`.
    """
    height, width, colours = _header(data)
    if height * width > MAX_PIXELS:
        raise ImageError(f"it has {width} x {height} pixels; at most {MAX_PIXELS:,} are decoded")
    if colours in ("CMYK", "YCCK") or _EXIF in bytes(data[:_EXIF_REACH]):
        # Four inks, and pictures that may have to be turned: rare, and OpenCV knows both.
        _refuse_damage(data)
        return _by_opencv(data)
    try:
        return simplejpeg.decode_jpeg(data, "RGB")
    except ValueError as error:
        if not _is_harmless(error):
            raise ImageError(_reason(error)) from None
    return _by_opencv(data)  # which says so on the standard error stream, and goes on


def encode_jpeg(image: npt.NDArray[np.uint8], quality: int = 95) -> bytes:
    """A picture as JPEG, with full colour resolution (no chroma subsampling).

    :param image: (H, W, 3) uint8 RGB.
    :param quality: 1 to 100.
    """
    return simplejpeg.encode_jpeg(
        np.ascontiguousarray(image), quality=quality, colorspace="RGB", colorsubsampling="444", fastdct=False
    )


def _header(data: bytes | memoryview) -> tuple[int, int, str]:
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except (ValueError, KeyError) as error:  # the latter for a header that does not say how colours are stored
        raise ImageError(_reason(error)) from None
    return int(height), int(width), colours


def _refuse_damage(data: bytes | memoryview) -> None:
    try:
        simplejpeg.decode_jpeg(data, "GRAY")
    except ValueError as error:
        # Four inks have no grey here; then OpenCV's own judgement has to do.
        if not _is_harmless(error) and ("end" in str(error).lower() or "corrupt" in str(error).lower()):
            raise ImageError(_reason(error)) from None


def _by_opencv(data: bytes | memoryview) -> npt.NDArray[np.uint8]:
    if bytes(data).rfind(_END) < bytes(data).rfind(_SCAN):
        raise ImageError("it is cut off: the end mark of a JPEG is missing")
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error as error:
        raise ImageError(f"its pixels cannot be decoded ({error.err})") from None
    if pixels is None:
        raise ImageError("its pixels cannot be decoded: the data are damaged")
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), np.uint8)


def _is_harmless(error: ValueError) -> bool:
    # Some cameras and programs leave a few stray bytes before a marker; no pixel suffers.
    return "extraneous bytes" in str(error)


def _reason(error: Exception) -> str:
    text = str(error)
    if isinstance(error, KeyError) or "header" in text.lower():
        return "its JPEG header is damaged or cut off"
    if "premature end of jpeg" in text.lower():
        return "it is cut off: the JPEG data end too early"
    return f"its JPEG data are damaged ({text})"
