"""Cutting crops: from a face image, which is already aligned, or from the frame the face was found in."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.errors import ArgumentValueError
from ostinato.faces.alignment import PADDING_RATIO, AlignedFace, even
from ostinato.faces.metadata import Centering, FaceMetadata


def crop_aligned(
    image: NDArray[np.uint8],
    metadata: FaceMetadata,
    size: int,
    centering: Centering = "face",
    coverage: float = 1.0,
    vertical_offset: float = 0.0,
    *,
    aligned: AlignedFace | None = None,
) -> NDArray[np.uint8]:
    """The crop of a face image: (size, size, C) uint8.

    The cut sits on whole pixels of the face image; what lies outside of it is black. Enlarging is bicubic, shrinking
    averages.

    :param image: (N, N, C) uint8 as extracted; any channel order.
    :param metadata: of that file; says how the image is centred and where the landmarks are.
    :param coverage: fraction, above 0 and at most 1.
    :param vertical_offset: in units of the face; positive moves the face down.
    :param aligned: the face's alignment, where the caller has it already.
    """
    side = image.shape[0]
    if image.ndim != 3 or image.shape[1] != side:
        raise ArgumentValueError(f"a face image is square; this one is {image.shape}.")
    source = metadata.centering
    if source == centering and coverage == 1 and vertical_offset == 0:
        return resize_square(image, size)
    aligned = aligned or AlignedFace.of(metadata.landmarks)
    width = crop_width(side, source, centering, coverage)
    moved = offset_between(aligned, source, centering, vertical_offset)
    unit = even(side * (1 - PADDING_RATIO[source]))
    corner = np.rint(moved * unit + (side - width) / 2).astype(int)
    return resize_square(cut_square(image, int(corner[0]), int(corner[1]), width), size)


def crop_frame(
    frame: NDArray[np.uint8],
    aligned: AlignedFace,
    size: int,
    centering: Centering = "face",
    coverage: float = 1.0,
    vertical_offset: float = 0.0,
) -> NDArray[np.uint8]:
    """The crop of a face from its whole frame: (size, size, C) uint8, black outside the frame.

    Enlarging is bicubic, shrinking bilinear. Parameters as :func:`crop_aligned`.
    """
    matrix = aligned.crop_matrix(size, centering, coverage, vertical_offset)
    x_scale = np.hypot(matrix[0, 0], matrix[0, 1])
    y_scale = (matrix[0, 0] * matrix[1, 1] - matrix[0, 1] * matrix[1, 0]) / x_scale
    enlarges = (x_scale + y_scale) / 2 >= 1
    flags = cv2.INTER_CUBIC if enlarges else cv2.INTER_LINEAR
    return np.asarray(cv2.warpAffine(frame, matrix, (size, size), flags=flags), np.uint8)


def crop_width(side: int, source: Centering, wanted: Centering, coverage: float) -> int:
    """Pixels of a source image of ``side`` pixels and one centering that a crop with another one covers."""
    if source == wanted and coverage == 1:
        return side
    return even(side * (1 - PADDING_RATIO[source]) / (1 - PADDING_RATIO[wanted]) * coverage)


def offset_between(
    aligned: AlignedFace, source: Centering, wanted: Centering, vertical_offset: float
) -> NDArray[np.float32]:
    """(2,) float32: from the centre of one crop to that of another, in units."""
    moved = aligned.offset(wanted) - aligned.offset(source)
    moved[1] -= vertical_offset
    return moved


def cut_square(image: NDArray[np.uint8], left: int, top: int, width: int) -> NDArray[np.uint8]:
    """The square of ``width`` pixels at (left, top), (H, W) or (H, W, C); zero where it lies outside the image.

    A view where the square lies inside.
    """
    height_there, width_there = image.shape[:2]
    y0, y1 = max(top, 0), min(top + width, height_there)
    x0, x1 = max(left, 0), min(left + width, width_there)
    if y1 - y0 == width and x1 - x0 == width:
        return image[y0:y1, x0:x1]
    result = np.zeros((width, width, *image.shape[2:]), np.uint8)
    if y1 > y0 and x1 > x0:
        result[y0 - top : y1 - top, x0 - left : x1 - left] = image[y0:y1, x0:x1]
    return result


def resize_square(image: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """A square image, (N, N) or (N, N, C), at another size: bicubic when larger, averaging when smaller."""
    side = image.shape[0]
    if side == size:
        return np.ascontiguousarray(image)
    interpolation = cv2.INTER_CUBIC if side < size else cv2.INTER_AREA
    return np.asarray(cv2.resize(image, (size, size), interpolation=interpolation), np.uint8)
