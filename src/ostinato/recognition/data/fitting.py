"""Bringing a picture to the square size of a network's input."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from ostinato.data.jpeg import ImageError

MAX_ASPECT = 8
"""How many times longer than the other the longer side may be. A face is square; a strip would become huge."""


def fit_to_square(image: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """Resize the shorter side to ``size`` (bicubic), and cut the middle out of the longer one.

    :param image: (H, W, 3) uint8.
    :return: (size, size, 3) uint8; the same array where it fits already.
    :raises ImageError: the picture is a strip, see :data:`MAX_ASPECT`.
    """
    height, width = image.shape[:2]
    if height == width == size:
        return image
    if max(height, width) > MAX_ASPECT * min(height, width):
        raise ImageError(f"it is a strip of {width} x {height} pixels; a picture of a face is nearly square")
    if min(height, width) != size:
        new = (size, size * height // width) if height > width else (size * width // height, size)
        image = np.asarray(cv2.resize(image, new, interpolation=cv2.INTER_CUBIC), np.uint8)
        height, width = image.shape[:2]
    top, left = (height - size) // 2, (width - size) // 2
    return image[top : top + size, left : left + size]
