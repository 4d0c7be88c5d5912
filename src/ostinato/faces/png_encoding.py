"""Pictures as PNG files in memory."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.faces.png_chunks import insert_before_pixels

_TO_OPENCV = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}


def encode_png(picture: NDArray[np.uint8], *, chunks: Sequence[bytes] = (), compression: int = 3) -> bytes:
    """The bytes of a PNG file.

    :param picture: (H, W, 3) RGB or (H, W, 4) RGBA, uint8.
    :param chunks: whole chunks (see :mod:`ostinato.faces.png_chunks`), put before the pixels.
    :param compression: zlib level 0 to 9 of the pixels.
    :raises OSError: the picture cannot be encoded.
    """
    turned = cv2.cvtColor(picture, _TO_OPENCV[picture.shape[2]])
    encoded, data = cv2.imencode(".png", turned, [cv2.IMWRITE_PNG_COMPRESSION, compression])
    if not encoded:
        raise OSError("the picture could not be encoded")
    return insert_before_pixels(data.tobytes(), chunks)
