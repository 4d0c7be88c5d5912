"""Picture files: the size of an open one, and the pixels of one by its path.

Names never reach the decoder, which cannot open every name a file system allows.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ostinato.data import pictures as data_pictures
from ostinato.data.jpeg import ImageError
from ostinato.data.pictures import PictureSize, decode_rgb
from ostinato.faces.face_files import face_file_error, open_regular, read_whole
from ostinato.faces.png_chunks import SIGNATURE, PngError, parse_header

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE = frozenset((0x01, *range(0xD0, 0xD9)))
MAX_JPEG_SEGMENTS = 10_000


def picture_size(file: BinaryIO) -> PictureSize:
    """Format and size of an open picture, from its header alone.

    :raises ImageError: another format, or a header that is cut off or makes no sense.
    """
    file.seek(0)
    start = file.read(64)
    try:
        if start[:8] == SIGNATURE:
            header = parse_header(start[16:29])
            size = PictureSize("PNG", header.height, header.width)
        elif start[:3] == b"\xff\xd8\xff":
            size = _jpeg_size(file)
        elif start[:2] == b"BM" or start[:4] == b"RIFF":
            size = data_pictures.picture_size(start)
        else:
            raise ImageError("it is no PNG, JPEG, BMP or WebP picture" if start else "it is empty")
    except PngError as error:
        raise ImageError(str(error)) from None
    except struct.error:
        raise ImageError("its header is cut off") from None
    if size.width < 1 or size.height < 1:
        raise ImageError(f"its size is {size.width} x {size.height}")
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
            return PictureSize("JPEG", height, width)
        else:
            position += 2 + length
    raise ImageError("its JPEG header holds no size")


def read_picture(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """A picture file's pixels as (H, W, 3) uint8, RGB; see :func:`ostinato.data.pictures.decode_rgb`.

    :raises FaceFileError: the file cannot be read or decoded. Fields: path, reason.
    """
    try:
        with open_regular(path) as file:
            data = read_whole(file)
        return decode_rgb(data)
    except (ImageError, PngError) as error:
        raise face_file_error(path, str(error)) from None
    except OSError as error:
        raise face_file_error(path, f"it cannot be read ({error.strerror or error})") from error
