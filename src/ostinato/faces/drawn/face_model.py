"""A head in three dimensions: 68 landmarks and the skull of a drawn identity, bent by an expression, turned by a pose.

Coordinates are *face units* (one unit is the side of the square that spans brow ends to lower lip) with the origin in
the middle of the head: x to the right of the image, y down, z towards the viewer. Positions of points 17 to 67 are
those of the mean face that alignment uses; depths and the outline are of the proportions of an adult head. Projection
is parallel: a landmark's place in the picture is its x and y after turning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ostinato.faces.drawn.identity import DrawnIdentity
from ostinato.faces.drawn.state import FaceState
from ostinato.faces.mean_face import MEAN_FACE

Points = NDArray[Any]
"""(n, 3) or (n, 2), float64."""

MIDDLE = np.array([0.5, 0.30])
"""The middle of the head in the mean face's own square, from which it is about as far to the crown as to the chin."""

# Depths of our own for the mean face's points 17 to 67.
_DEPTH = (0.44, 0.53, 0.60, 0.645, 0.665, 0.665, 0.645, 0.60, 0.53, 0.44,
          0.63, 0.70, 0.78, 0.85, 0.64, 0.68, 0.71, 0.68, 0.64,
          0.46, 0.53, 0.55, 0.51, 0.54, 0.52,
          0.51, 0.55, 0.53, 0.46, 0.52, 0.54,
          0.55, 0.62, 0.67, 0.675, 0.67, 0.62, 0.55,
          0.61, 0.645, 0.65, 0.645, 0.61,
          0.56, 0.645, 0.66, 0.645, 0.56, 0.64, 0.65, 0.64)  # fmt: skip

SKULL_CENTRE = np.array([0.0, -0.13, -0.06])
SKULL_RADII = np.array([0.615, 0.72, 0.68])

_BROWS = slice(17, 27)
_LEFT_EYE = slice(36, 42)
_RIGHT_EYE = slice(42, 48)
_MOUTH = slice(48, 68)


@dataclass(frozen=True)
class PosedHead:
    """A head after expression and pose.

    :param local: (68, 3) landmarks in head coordinates.
    :param rotation: (3, 3): head coordinates to view coordinates.
    :param skull_radii: (3,) radii of the skull's ellipsoid in head coordinates.
    """

    local: Points
    rotation: Points
    skull_radii: Points

    @property
    def view(self) -> Points:
        """(68, 3) landmarks in view coordinates; the first two columns are the projection."""
        return self.local @ self.rotation.T

    def project(self, local: Points) -> Points:
        """(n, 2) view positions of (n, 3) points given in head coordinates."""
        return local @ self.rotation[:2].T


def pose_head(identity: DrawnIdentity, state: FaceState) -> PosedHead:
    """The head of ``identity`` in the pose and with the expression of ``state``."""
    local = _neutral_landmarks(identity)
    _express(local, state)
    radii = SKULL_RADII * np.array([identity.face_width, 1.0, 1.0])
    return PosedHead(local, rotation_matrix(state.yaw, state.pitch, state.roll), radii)


def rotation_matrix(yaw: float, pitch: float, roll: float) -> Points:
    """(3, 3) matrix from head to view coordinates: yaw first, then pitch, then roll, in degrees."""
    y, p, r = np.radians((yaw, pitch, roll))
    turn = np.array([[np.cos(y), 0, np.sin(y)], [0, 1, 0], [-np.sin(y), 0, np.cos(y)]])
    nod = np.array([[1, 0, 0], [0, np.cos(p), np.sin(p)], [0, -np.sin(p), np.cos(p)]])
    tilt = np.array([[np.cos(r), -np.sin(r), 0], [np.sin(r), np.cos(r), 0], [0, 0, 1]])
    return tilt @ nod @ turn


def _neutral_landmarks(identity: DrawnIdentity) -> Points:
    points = np.empty((68, 3))
    points[17:, :2] = MEAN_FACE - MIDDLE
    points[17:, 2] = _DEPTH
    points[:17] = _jaw(identity)

    points[_BROWS, 1] -= identity.brow_lift
    arch = np.array([-0.4, 0.5, 1.0, 0.6, 0.0])
    points[17:22, 1] -= identity.brow_arch * arch
    points[22:27, 1] -= identity.brow_arch * arch[::-1]
    for eye in (_LEFT_EYE, _RIGHT_EYE):
        middle = points[eye].mean(axis=0)
        side = np.sign(middle[0])
        points[eye, :2] = middle[:2] + (points[eye, :2] - middle[:2]) * (identity.eye_width, identity.eye_height)
        points[eye, 1] -= identity.eye_tilt * (points[eye, 0] - middle[0]) * side / 0.1
        points[eye, 0] += middle[0] * (identity.eye_spacing - 1)
    nose = slice(27, 36)
    points[nose, 0] *= identity.nose_width
    points[nose, 1] = points[27, 1] + (points[nose, 1] - points[27, 1]) * identity.nose_length
    lips = points[_MOUTH]
    middle_y = points[62, 1]
    lips[:, 0] *= identity.mouth_width
    # The lips grow away from the line where they meet, which stays where it is.
    outer = slice(0, 12)
    lips[outer, 1] = middle_y + (lips[outer, 1] - middle_y) * (0.62 + 0.38 * identity.lip_thickness)
    lips[13:16, 1] = middle_y
    lips[17:20, 1] = middle_y + 0.004
    return points


def _jaw(identity: DrawnIdentity) -> Points:
    """(17, 3): the outline from ear to chin to ear, a superellipse in front view that comes forward at the chin."""
    angle = np.linspace(-np.pi / 2, np.pi / 2, 17)
    # Exponents below 1 push the curve outwards at the jaw's corner.
    bulge = 1.05 - 0.32 * identity.jaw_squareness
    x = np.sign(angle) * np.abs(np.sin(angle)) ** bulge * 0.615 * identity.face_width
    down = np.cos(angle) ** (0.98 - 0.12 * identity.jaw_squareness)
    y = -0.06 + down * 0.95 * identity.chin_length
    z = -0.04 + 0.52 * np.cos(angle) ** 0.8
    return np.stack([x, y, z], axis=1)


def _express(points: Points, state: FaceState) -> None:
    """Bend landmarks in place by the expression of ``state``."""
    opened = 0.19 * state.mouth_open
    lower = np.array([55, 56, 57, 58, 59, 65, 66, 67])
    # Points near the mouth's middle travel the whole way, points at its corners none of it.
    weight = 1 - 0.45 * (np.abs(points[lower, 0]) / 0.17) ** 2
    points[lower, 1] += opened * np.clip(weight, 0.3, 1)
    points[[48, 54, 60, 64], 1] += 0.2 * opened
    points[_MOUTH, 0] *= 1 - 0.12 * state.mouth_open
    jaw_weight = np.cos(np.linspace(-np.pi / 2, np.pi / 2, 17)) ** 2
    points[:17, 1] += 0.5 * opened * jaw_weight

    smile = state.smile
    width = np.abs(points[_MOUTH, 0]) / 0.236
    points[_MOUTH, 1] -= 0.062 * smile * np.clip(width, 0, 1.2) ** 1.6 - 0.012 * smile
    points[_MOUTH, 0] *= 1 + 0.13 * smile
    points[_MOUTH, 2] -= 0.03 * smile * width
    # Cheeks lift the lower lids a little.
    points[[40, 41, 46, 47], 1] -= 0.012 * max(smile, 0.0)

    inner = np.array([0.55, 0.8, 1.0, 1.0, 0.95])
    points[17:22, 1] -= 0.055 * state.brow_raise * inner
    points[22:27, 1] -= 0.055 * state.brow_raise * inner[::-1]
    if state.brow_raise < 0:
        # Frowning also draws the inner ends together.
        points[[20, 21], 0] -= 0.05 * state.brow_raise
        points[[22, 23], 0] += 0.05 * state.brow_raise
    for upper, under in (((37, 38), (41, 40)), ((43, 44), (47, 46))):
        gap = points[list(under), 1] - points[list(upper), 1]
        points[list(upper), 1] += 0.85 * state.blink * gap
        points[list(under), 1] -= 0.08 * state.blink * gap
