"""Where a ray through each pixel meets an ellipsoid, and how much light falls there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ostinato.faces.drawn.face_model import Points

Field = NDArray[np.float32]
Window = tuple[slice, slice]


def light_vector(azimuth: float, elevation: float) -> Points:
    """Unit vector towards the light in view coordinates; degrees, 0, 0 is the camera's own direction."""
    a, e = np.radians((azimuth, elevation))
    return np.array([np.sin(a) * np.cos(e), -np.sin(e), np.cos(a) * np.cos(e)])


def smoothstep(low: float, high: float, value: Field) -> Field:
    """0 below ``low``, 1 above ``high``, with a smooth ramp between."""
    t = np.clip((value - np.float32(low)) * np.float32(1 / (high - low)), 0, 1)
    return t * t * (3 - 2 * t)


@dataclass(frozen=True)
class Surface:
    """The visible points of an ellipsoid, one per pixel of a window.

    :param unit: (3, h, w), or (3, n) after :meth:`where`: the point divided by the radii, in head coordinates; a unit
        vector inside the silhouette.
    :param coverage: (h, w) or (n,), 0 to 1: inside the silhouette, with an edge one pixel wide.
    :param radii: (3,).
    :param rotation: (3, 3), head to view coordinates.
    :param scale: pixels per face unit.
    """

    unit: Field
    coverage: Field
    radii: Points
    rotation: Points
    scale: float

    def where(self, chosen: NDArray[np.bool_]) -> Surface:
        """The same surface at the ``chosen`` pixels alone, in one row."""
        return replace(self, unit=self.unit[:, chosen], coverage=self.coverage[chosen])

    def facing(self, direction: Points) -> Field:
        """Cosine between the surface's normal and a unit vector in view coordinates, -1 to 1."""
        return self._dot(self.rotation.T @ direction)

    def towards_viewer(self) -> Field:
        """Cosine between the surface's normal and the viewer's direction."""
        return self._dot(self.rotation[2])

    def _dot(self, local: Points) -> Field:
        weights = np.asarray(local / self.radii, np.float32)
        inverse = np.asarray(1 / self.radii, np.float32)
        length = np.sqrt(sum((self.unit[i] * inverse[i]) ** 2 for i in range(3)))
        return sum(self.unit[i] * weights[i] for i in range(3)) / np.maximum(length, np.float32(1e-6))


class Ellipsoid:
    """An ellipsoid of a posed head.

    :param centre, radii: in head coordinates.
    :param rotation: (3, 3), head to view coordinates.
    :param matrix: (2, 3), view to pixels.
    """

    def __init__(self, centre: Points, radii: Points, rotation: Points, matrix: NDArray[Any]) -> None:
        self._radii = np.asarray(radii, dtype=float)
        self._rotation = rotation
        self._matrix = matrix
        self._centre = rotation @ centre
        self._scale = float(np.sqrt(abs(np.linalg.det(matrix[:, :2]))))
        # Extents of the projection: the ellipse with the matrix (R diag(r^2) R^T) cut to x and y.
        self._spread = ((rotation * self._radii**2) @ rotation.T)[:2, :2]

    def silhouette(self, count: int = 40) -> NDArray[Any]:
        """(count, 2) pixels along the outline."""
        angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
        ring = np.stack([np.cos(angle), np.sin(angle)], axis=1) @ np.linalg.cholesky(self._spread).T
        return (ring + self._centre[:2]) @ self._matrix[:, :2].T + self._matrix[:, 2]

    def window(self, height: int, width: int, margin: float = 0.05) -> Window | None:
        """The part of a ``height`` x ``width`` picture that the ellipsoid covers; ``margin`` in face units."""
        outline = self.silhouette()
        grow = margin * self._scale
        left, top = np.floor(outline.min(axis=0) - grow).astype(int).tolist()
        right, bottom = (np.ceil(outline.max(axis=0) + grow).astype(int) + 1).tolist()
        left, top, right, bottom = max(0, left), max(0, top), min(width, right), min(height, bottom)
        if left >= right or top >= bottom:
            return None
        return slice(top, bottom), slice(left, right)

    def surface(self, window: Window) -> Surface:
        """The surface seen through each pixel of ``window``; outside the silhouette, the nearest point of the ray."""
        rows, columns = window
        linear = np.linalg.inv(self._matrix[:, :2])
        shift = -linear @ self._matrix[:, 2] - self._centre[:2]
        # unit = G (x, y, z): head coordinates divided by the radii, as a function of the view position.
        g = (self._rotation / self._radii).T
        across = g[:, :2] @ linear
        start = g[:, :2] @ shift
        x = np.arange(columns.start, columns.stop, dtype=np.float32)
        y = np.arange(rows.start, rows.stop, dtype=np.float32)[:, None]
        flat = np.stack(
            [np.float32(across[i, 0]) * x + np.float32(across[i, 1]) * y + np.float32(start[i]) for i in range(3)]
        )
        depth = np.asarray(g[:, 2], np.float32)
        a = np.float32(g[:, 2] @ g[:, 2])
        b = flat[0] * depth[0] + flat[1] * depth[1] + flat[2] * depth[2]
        c = flat[0] ** 2 + flat[1] ** 2 + flat[2] ** 2 - 1
        inside = b * b - a * c
        z = (np.sqrt(np.maximum(inside, 0)) - b) / a
        unit = flat + depth[:, None, None] * z
        # ``inside / a`` is 1 - rho^2, with rho = 1 on the outline; near it that is 2 (1 - rho).
        pixels = np.float32(
            0.5 * np.sqrt(np.sqrt(np.linalg.det(self._spread)) * abs(np.linalg.det(self._matrix[:, :2])))
        )
        coverage = np.clip(inside * (pixels / a) + np.float32(0.5), 0, 1)
        return Surface(unit.astype(np.float32), coverage.astype(np.float32), self._radii, self._rotation, self._scale)
