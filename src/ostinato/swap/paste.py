"""Putting a drawn face back: into the face image its crop came from, or into the frame.

Pixel centres have whole coordinates; a (2, 3) matrix takes (x, y, 1) to (x, y).
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.faces.alignment import PADDING_RATIO, AlignedFace, even
from ostinato.faces.cropping import crop_width, offset_between
from ostinato.faces.metadata import Centering
from ostinato.faces.sample import CropSettings

BORDER_PART = 0.05
"""The part of a crop's side over which a pasted face fades out at the crop's edge."""

FEATHER_PART = 0.03
"""The part of a crop's side by which the mask's edge is moved inwards and softened."""


def crop_to_face(
    side: int, source: Centering, aligned: AlignedFace, crop: CropSettings, size: int
) -> NDArray[np.float64]:
    """(2, 3): from pixels of a crop of ``size`` to pixels of the face image it was cut from.

    Exactly the inverse of :func:`ostinato.faces.cropping.crop_aligned`, whose cut sits on whole pixels.

    :param side: of the face image, pixels.
    :param source: how the face image is cut.
    """
    if source == crop.centering and crop.coverage == 1 and crop.vertical_offset == 0:
        return enlarge(side / size)
    width = crop_width(side, source, crop.centering, crop.coverage)
    unit = even(side * (1 - PADDING_RATIO[source]))
    moved = offset_between(aligned, source, crop.centering, crop.vertical_offset)
    corner = np.rint(moved * unit + (side - width) / 2)
    matrix = enlarge(width / size)
    matrix[:, 2] += corner
    return matrix


def enlarge(scale: float) -> NDArray[np.float64]:
    """(2, 3): from a picture to the same one ``scale`` times as large; the outer edges meet, not the pixel centres."""
    shift = 0.5 * scale - 0.5
    return np.array([[scale, 0, shift], [0, scale, shift]], np.float64)


def chain(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """(2, 3): ``first``, then ``second``."""
    return np.asarray(second[:, :2] @ first + np.array([[0, 0, 1.0]]) * second[:, 2:], np.float64)


def feather(mask: NDArray[np.uint8] | None, size: int) -> NDArray[np.float32]:
    """(size, size), 0 to 1: how much of a drawn face is used. Never above the mask, and 0 at the crop's edge.

    :param mask: (size, size), 255 inside; None for all of the crop.
    """
    ramp = np.clip((np.minimum(np.arange(size), np.arange(size)[::-1])) / max(1.0, BORDER_PART * size), 0, 1)
    border = (ramp * ramp * (3 - 2 * ramp)).astype(np.float32)
    alpha = np.minimum(border[:, None], border)
    if mask is None:
        return alpha
    reach = max(1, round(FEATHER_PART * size))
    # Moved inwards before it is softened, so that nothing outside the mask is ever touched.
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1, 2 * reach + 1))
    inner = cv2.GaussianBlur(cv2.erode(mask, kernel), (2 * reach + 1, 2 * reach + 1), 0)
    return (alpha * np.minimum(inner, mask) / 255).astype(np.float32)


def paste(
    picture: NDArray[np.uint8], face: NDArray[np.float32], alpha: NDArray[np.float32], matrix: NDArray[np.float64]
) -> bool:
    """Blend a face into a picture, in place; returns whether a pixel of the picture could be reached.

    :param picture: (H, W, 3), RGB.
    :param face: (s, s, 3), RGB, 0 to 1.
    :param alpha: (s, s), 0 to 1.
    :param matrix: (2, 3), from pixels of ``face`` to pixels of ``picture``.
    """
    window = _window(alpha, matrix, picture.shape[0], picture.shape[1])
    if window is None:
        return False
    rows, columns = window
    scale = float(np.sqrt(abs(np.linalg.det(matrix[:, :2]))))
    size = alpha.shape[0]
    smaller = max(1, round(size * scale))
    if smaller < size:
        # Warping reads four pixels whatever the scale, so a face that shrinks is averaged down first.
        face = np.asarray(cv2.resize(face, (smaller, smaller), interpolation=cv2.INTER_AREA), np.float32)
        alpha = np.asarray(cv2.resize(alpha, (smaller, smaller), interpolation=cv2.INTER_AREA), np.float32)
        matrix = chain(enlarge(size / smaller), matrix)
    matrix = matrix.copy()
    matrix[:, 2] -= (columns.start, rows.start)
    shape = (columns.stop - columns.start, rows.stop - rows.start)
    drawn = _warp(face, matrix, shape, cv2.INTER_CUBIC, cv2.BORDER_REPLICATE)
    weight = np.clip(_warp(alpha, matrix, shape, cv2.INTER_LINEAR, cv2.BORDER_CONSTANT), 0, 1)[..., None]
    target = picture[rows, columns]
    below = target.astype(np.float32)
    target[:] = np.clip(np.rint(below + (drawn * 255 - below) * weight), 0, 255).astype(np.uint8)
    return bool((weight > 0).any())


def _warp(
    image: NDArray[np.float32], matrix: NDArray[Any], shape: tuple[int, int], interpolation: int, border: int
) -> NDArray[np.float32]:
    warped = cv2.warpAffine(image, matrix, shape, flags=interpolation, borderMode=border)
    return np.asarray(warped, np.float32)


def _window(
    alpha: NDArray[np.float32], matrix: NDArray[np.float64], height: int, width: int
) -> tuple[slice, slice] | None:
    """The rows and columns of the picture that the used part of the face can reach."""
    used_rows, used_columns = np.flatnonzero(alpha.any(axis=1)), np.flatnonzero(alpha.any(axis=0))
    if not len(used_rows):
        return None
    x0, x1, y0, y1 = used_columns[0] - 1, used_columns[-1] + 1, used_rows[0] - 1, used_rows[-1] + 1
    corners = np.array([[x0, y0, 1], [x1, y0, 1], [x0, y1, 1], [x1, y1, 1]], np.float64) @ matrix.T
    low = np.clip(np.floor(corners.min(axis=0)) - 1, 0, (width, height)).astype(int)
    high = np.clip(np.ceil(corners.max(axis=0)) + 2, 0, (width, height)).astype(int)
    if (high <= low).any():
        return None
    return slice(int(low[1]), int(high[1])), slice(int(low[0]), int(high[0]))
