"""The affine transform (rotation, zoom, shift) with the mirror image folded in."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt


def transform_matrices(
    rotation: npt.NDArray[np.float64],
    zoom: npt.NDArray[np.float64],
    shift: npt.NDArray[np.float64],
    flip: npt.NDArray[np.bool_],
    size: int,
) -> npt.NDArray[np.float64]:
    """Matrices from source to destination pixels: rotate and zoom about the centre, shift, then mirror.

    :param rotation: (n,) degrees; positive turns the picture counter-clockwise.
    :param zoom: (n,) factors.
    :param shift: (n, 2) pixels.
    :param flip: (n,) mirror left to right.
    :param size: side of the image in pixels. Pixel centres have integer coordinates.
    :return: (n, 2, 3).
    """
    centre = (size - 1) / 2.0
    angle = np.deg2rad(rotation)
    cosine = zoom * np.cos(angle)
    sine = zoom * np.sin(angle)
    matrices = np.empty((len(rotation), 2, 3))
    matrices[:, 0, 0] = matrices[:, 1, 1] = cosine
    matrices[:, 0, 1] = sine
    matrices[:, 1, 0] = -sine
    matrices[:, 0, 2] = centre * (1.0 - cosine) - centre * sine + shift[:, 0]
    matrices[:, 1, 2] = centre * sine + centre * (1.0 - cosine) + shift[:, 1]
    # x becomes size - 1 - x
    matrices[flip, 0] *= -1.0
    matrices[flip, 0, 2] += size - 1
    return matrices


def invert(matrices: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The inverse affine maps.

    :param matrices: (n, 2, 3), none of them singular.
    """
    inverse = np.empty_like(matrices)
    (a, b, x), (c, d, y) = matrices.transpose(1, 2, 0)
    scale = 1.0 / (a * d - b * c)
    inverse[:, 0, 0] = d * scale
    inverse[:, 0, 1] = -b * scale
    inverse[:, 0, 2] = (b * y - d * x) * scale
    inverse[:, 1, 0] = -c * scale
    inverse[:, 1, 1] = a * scale
    inverse[:, 1, 2] = (c * x - a * y) * scale
    return inverse


def transform_points(points: npt.NDArray[Any], matrices: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Points after the transform.

    :param points: (n, k, 2) x and y.
    :param matrices: (n, 2, 3).
    """
    return points @ matrices[:, :, :2].transpose(0, 2, 1) + matrices[:, None, :, 2]


def transform_image(image: npt.NDArray[Any], inverse: npt.NDArray[np.float64], out: npt.NDArray[np.uint8]) -> None:
    """Resample ``image`` bilinearly into ``out``; beyond its border the edge pixels go on.

    :param image: (size, size) or (size, size, 3) uint8.
    :param inverse: (2, 3) from destination to source pixels.
    :param out: as ``image``, contiguous; not ``image`` itself.
    """
    cv2.warpAffine(
        image,
        inverse,
        (out.shape[1], out.shape[0]),
        dst=out,
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REPLICATE,
    )
