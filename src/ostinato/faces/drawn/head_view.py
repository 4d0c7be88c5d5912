"""A posed head on a canvas: where its parts lie, and how its light falls."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.faces.drawn import brushes
from ostinato.faces.drawn.brushes import Curve
from ostinato.faces.drawn.face_model import SKULL_CENTRE, Points, PosedHead
from ostinato.faces.drawn.identity import DrawnIdentity
from ostinato.faces.drawn.shading import Ellipsoid, light_vector
from ostinato.faces.drawn.state import FaceState


class HeadView:
    """Places of one person's head on one canvas.

    :param to_pixels: (2, 3) matrix from frame pixels to canvas pixels.
    :param head: of this identity in this state.
    """

    def __init__(self, identity: DrawnIdentity, state: FaceState, to_pixels: NDArray[Any], head: PosedHead) -> None:
        self.identity = identity
        self.state = state
        self.head = head
        placement = np.array([[state.scale, 0, state.centre[0]], [0, state.scale, state.centre[1]], [0, 0, 1]])
        self.matrix: NDArray[Any] = np.asarray(to_pixels, dtype=float) @ placement
        """(2, 3), view coordinates to canvas pixels."""
        self.unit = float(np.sqrt(abs(np.linalg.det(self.matrix[:, :2]))))
        """Canvas pixels per face unit."""
        self.light: Points = light_vector(state.light_azimuth, state.light_elevation)
        """Unit vector towards the light, view coordinates."""

    @property
    def landmarks(self) -> Points:
        """(68, 3) landmarks in head coordinates, expression included."""
        return self.head.local

    def pixels(self, view: Points) -> Curve:
        """Canvas pixels of (n, 2) view coordinates."""
        return view @ self.matrix[:, :2].T + self.matrix[:, 2]

    def at(self, local: Points) -> Curve:
        """Canvas pixels of (n, 3) head coordinates."""
        return self.pixels(self.head.project(np.asarray(local, dtype=float)))

    def curve(self, local: Points, *, closed: bool = False, steps: int = 5) -> Curve:
        """A smooth curve in canvas pixels through points in head coordinates."""
        return brushes.smooth(self.at(local), closed=closed, steps=steps)

    def ring(self, centre: Points, radii: tuple[float, float], count: int = 16) -> Curve:
        """An ellipse in canvas pixels that lies upright and frontal on the head."""
        flat = brushes.unit_circle(count) * (*radii, 0)
        return self.at(np.asarray(centre) + flat)

    def ellipsoid(self, centre: Points, radii: Points) -> Ellipsoid:
        """An ellipsoid given in head coordinates."""
        return Ellipsoid(centre, radii, self.head.rotation, self.matrix)

    def outline(self) -> Curve:
        """The silhouette of skull and jaw: their hull, since a head is nearly convex."""
        skull = self.ellipsoid(SKULL_CENTRE, self.head.skull_radii).silhouette()
        jaw = self.pixels(brushes.smooth(self.head.view[:17, :2], closed=False))
        hull = cv2.convexHull(np.concatenate([skull, jaw]).astype(np.float32))
        return np.asarray(hull[:, 0], dtype=float)
