"""The random warp: a 5 x 5 lattice of control points, displaced and enlarged to one source position per pixel."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from ostinato.faces.augmentation.draws import LATTICE_POINTS

# OpenCV's type hints have no None here; an empty array in its place is not the same and spoils the result.
_NO_SECOND_MAP: Any = None


def source_lattices(
    noise: npt.NDArray[np.float64], inverse: npt.NDArray[np.float64], size: int
) -> npt.NDArray[np.float32]:
    """Control points as positions in the image before the affine transform.

    An enlarged lattice is a weighted mean of control points with weights that sum to one, so the affine map can be
    applied to the 25 points in place of the whole map: the image is sampled once, with both composed.

    :param noise: (n, 2, 5, 5) offsets of x and y in pixels.
    :param inverse: (n, 2, 3) from transformed to source pixels.
    :param size: side of the image in pixels.
    :return: (n, 5, 5, 2) x and y.
    """
    # A lattice enlarged by the half-pixel rule reads half a pixel to the right and below; the 0.5 takes that back.
    line = np.arange(LATTICE_POINTS) * (size / (LATTICE_POINTS - 1)) - 0.5
    points = noise.transpose(0, 2, 3, 1) + np.stack(np.meshgrid(line, line), axis=-1)
    count = len(points)
    placed = points.reshape(count, -1, 2) @ inverse[:, :, :2].transpose(0, 2, 1) + inverse[:, None, :, 2]
    return placed.reshape(points.shape).astype(np.float32)


def enlarge_lattice(lattice: npt.NDArray[np.float32], size: int) -> npt.NDArray[Any]:
    """A source position for every pixel, by bilinear interpolation between control points.

    :param lattice: (5, 5, 2).
    :param size: side of the map.
    :return: (size, size, 2) float32. Pixel x lies at 4 (x + 0.5) / size on the lattice.
    """
    if size % 8 == 0:
        # The same numbers as below from one optimised call: a resize to 5/4 of the side has its pixels at just these
        # places, after a margin of an eighth.
        margin = size // 8
        whole = cv2.resize(lattice, (size + 2 * margin, size + 2 * margin), interpolation=cv2.INTER_LINEAR)
        return whole[margin : margin + size, margin : margin + size]
    weights = lattice_weights(size)
    return np.einsum("yi,ijc,xj->yxc", weights, lattice, weights, optimize=True).astype(np.float32)


def lattice_weights(size: int) -> npt.NDArray[np.float64]:
    """(size, 5) weight of every control point of a line for every pixel of a line; rows sum to 1."""
    place = (LATTICE_POINTS - 1) * (np.arange(size) + 0.5) / size
    return np.clip(1.0 - np.abs(place[:, None] - np.arange(LATTICE_POINTS)), 0.0, None)


def warp_image(image: npt.NDArray[Any], positions: npt.NDArray[Any], out: npt.NDArray[np.uint8]) -> None:
    """Sample ``image`` bilinearly at ``positions``; beyond its border the edge pixels go on.

    :param image: (h, w, 3) uint8.
    :param positions: (size, size, 2) x and y in ``image``.
    :param out: (size, size, 3) uint8, contiguous.
    """
    cv2.remap(image, positions, _NO_SECOND_MAP, cv2.INTER_LINEAR, dst=out, borderMode=cv2.BORDER_REPLICATE)
