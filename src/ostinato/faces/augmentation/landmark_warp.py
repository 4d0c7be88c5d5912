"""Warp to landmarks: bend a face to the shape of another one.

The neighbour's landmarks and eight fixed points of the border are triangulated (Delaunay). Within a triangle, the
source position is the linear map that takes its corners to the face's own landmarks.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

_JAW = 17
"""Landmarks 0 to 16 are the jaw. They are left out where they would fold over the inner face."""

_FAR = 64.0
"""How many image sides the triangulation's helper corners are away; far enough not to bend the hull's edges."""


def landmark_map(own: npt.NDArray[Any], target: npt.NDArray[Any], size: int) -> npt.NDArray[np.float32]:
    """A source position for every pixel, so that what lies at ``own`` comes to lie at ``target``.

    Corners and middles of the border stay. A pixel outside every triangle (there is none as long as the corners span
    the image) keeps its own position.

    :param own: (68, 2) x and y of this face, pixels.
    :param target: (68, 2) x and y of the wanted shape, pixels.
    :param size: side of the image.
    :return: (size, size, 2) x and y, float32.
    """
    return piecewise_linear(*anchored_points(own, target, size), size)


def piecewise_linear(
    sources: npt.NDArray[np.float64], targets: npt.NDArray[np.float64], size: int
) -> npt.NDArray[np.float32]:
    """The map that is linear in every triangle of ``targets`` and takes each target to its source.

    :param sources: (k, 2) x and y.
    :param targets: (k, 2) x and y.
    :param size: side of the image.
    :return: (size, size, 2) x and y, float32; the identity outside every triangle.
    """
    triangles = delaunay(targets, size)
    corners = targets[triangles]
    numbers = triangle_of_pixel(corners, size)
    maps = np.concatenate([_triangle_maps(corners, sources[triangles]), [[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]])
    # Number -1 (outside) picks the identity, which stands last.
    line = np.arange(size, dtype=np.float32)
    chosen = maps.astype(np.float32).reshape(-1, 6)
    result = np.empty((size, size, 2), dtype=np.float32)
    for axis in range(2):
        plane = chosen[:, axis][numbers]
        plane *= line
        plane += chosen[:, 2 + axis][numbers] * line[:, None]
        plane += chosen[:, 4 + axis][numbers]
        result[..., axis] = plane
    return result


def anchored_points(
    own: npt.NDArray[Any], target: npt.NDArray[Any], size: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Source and target points to triangulate.

    Jaw points that lie in or on the hull of either inner face are left out of both; eight points of the border are
    added.

    :return: two arrays (k, 2).
    """
    own = np.asarray(own, dtype=np.float64)
    target = np.asarray(target, dtype=np.float64)
    keep = np.ones(len(own), dtype=bool)
    for points in (own, target):
        hull = cv2.convexHull(np.trunc(points[_JAW:]).astype(np.int32))
        for index in range(_JAW):
            x, y = points[index]
            if cv2.pointPolygonTest(hull, (float(x), float(y)), False) >= 0:
                keep[index] = False
    last, half = size - 1, size // 2 - 1
    border = np.array(
        [(0, 0), (0, last), (last, last), (last, 0), (half, 0), (half, last), (last, half), (0, half)], dtype=np.float64
    )
    return np.concatenate([own[keep], border]), np.concatenate([target[keep], border])


def delaunay(points: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.int64]:
    """The Delaunay triangles of ``points``.

    Points are rounded to float32. Of two at one place only the last takes part.

    :param points: (k, 2), all finite.
    :param size: side of the image the points belong to.
    :return: (t, 3) indices into ``points``.
    """
    rounded = points.astype(np.float32)
    reach = _FAR * max(size, float(np.abs(rounded).max()) + 1.0)
    division = cv2.Subdiv2D()
    division.initDelaunay((int(-reach), int(-reach), int(2 * reach), int(2 * reach)))
    index_at: dict[tuple[float, float], int] = {}
    for index in range(len(rounded)):
        place = (float(rounded[index, 0]), float(rounded[index, 1]))
        index_at[place] = index
        division.insert(place)
    found = [
        [index_at.get((float(triangle[i]), float(triangle[i + 1])), -1) for i in (0, 2, 4)]
        for triangle in np.asarray(division.getTriangleList()).tolist()
    ]
    # A corner that is no point of ours is a helper corner of the subdivision.
    return np.array([triangle for triangle in found if min(triangle) >= 0], dtype=np.int64).reshape(-1, 3)


def triangle_of_pixel(corners: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.int64]:
    """Which triangle holds each pixel's centre.

    Triangles that do not overlap cut every row of pixels into intervals that follow one another. So it is enough to
    mark where each triangle's interval begins and ends, and to carry the marks to the right.

    :param corners: (t, 3, 2) x and y.
    :param size: side of the image.
    :return: (size, size) numbers of triangles, -1 for a pixel outside all of them.
    """
    rows = np.arange(size, dtype=np.float64)
    start = np.full((len(corners), size), np.inf)
    stop = np.full((len(corners), size), -np.inf)
    for first, second in ((0, 1), (1, 2), (2, 0)):
        x0, y0 = corners[:, first, 0, None], corners[:, first, 1, None]
        x1, y1 = corners[:, second, 0, None], corners[:, second, 1, None]
        height = y1 - y0
        crosses = (np.minimum(y0, y1) <= rows) & (rows <= np.maximum(y0, y1)) & (height != 0)
        x = x0 + (rows - y0) * ((x1 - x0) / np.where(height == 0, 1.0, height))
        np.minimum(start, x, out=start, where=crosses)
        np.maximum(stop, x, out=stop, where=crosses)
    # Rounding may leave a pixel on a shared edge to neither side; a small tolerance gives it to both, and one wins.
    with np.errstate(invalid="ignore"):
        first_pixel = np.ceil(np.maximum(start - 1e-6, 0.0))
        last_pixel = np.floor(np.minimum(stop + 1e-6, size - 1.0))
    triangle, row = np.nonzero(first_pixel <= last_pixel)
    begin = first_pixel[triangle, row].astype(np.int64)
    end = last_pixel[triangle, row].astype(np.int64)
    # Longer intervals are written last: where a sliver begins at the same pixel, the larger triangle takes it.
    by_length = np.argsort(end - begin, kind="stable")
    triangle, row, begin, end = triangle[by_length], row[by_length], begin[by_length], end[by_length]
    numbers = np.full((size, size), -1, dtype=np.int64)
    marked = np.zeros((size, size), dtype=np.int64)
    numbers[row, begin] = triangle
    marked[row, begin] = begin
    carried = np.take_along_axis(numbers, np.maximum.accumulate(marked, axis=1), axis=1)
    # Behind the last interval of a row, marks are carried too far: there, as many intervals have ended as begun.
    width = size + 1
    changes = np.bincount(row * width + begin, minlength=size * width)
    changes -= np.bincount(row * width + end + 1, minlength=size * width)
    covered = np.cumsum(changes.reshape(size, width)[:, :size], axis=1) > 0
    return np.where(covered, carried, -1)


def _triangle_maps(corners: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(t, 3, 2): rows are the coefficients of x, of y and of 1, for the value at a point of each triangle.

    A triangle without area takes the mean of its values.
    """
    edges = corners[:, 1:] - corners[:, :1]
    changes = values[:, 1:] - values[:, :1]
    determinant = edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0]
    flat = np.abs(determinant) < 1e-9
    safe = np.where(flat, 1.0, determinant)[:, None]
    by_x = (edges[:, 1, 1, None] * changes[:, 0] - edges[:, 0, 1, None] * changes[:, 1]) / safe
    by_y = (edges[:, 0, 0, None] * changes[:, 1] - edges[:, 1, 0, None] * changes[:, 0]) / safe
    by_x[flat] = by_y[flat] = 0.0
    constant = values[:, 0] - by_x * corners[:, 0, 0, None] - by_y * corners[:, 0, 1, None]
    constant[flat] = values[flat].mean(axis=1)
    return np.stack([by_x, by_y, constant], axis=1)
