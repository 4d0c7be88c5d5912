"""Where a face lies: from landmarks in a frame to the matrix of any crop.

*Normalised space* is where the mean face lives: the square from (0, 0) to (1, 1) spans the outer brow ends to just
below the lower lip, and its side is one *unit*. A crop shows that square and a margin around it; the *centering* says
around which part of the head: ``legacy`` the nose, ``face`` the face, ``head`` the skull. *Coverage* is the fraction
of the full crop that is shown; the *vertical offset* moves the face down in the crop by a fraction of a unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ostinato.errors import ArgumentValueError
from ostinato.faces.mean_face import FIRST_ALIGNED_POINT, MEAN_FACE, POINTS_98_TO_68, UNIT_SQUARE
from ostinato.faces.metadata import Centering
from ostinato.faces.pose import Pose, estimate_pose, no_pose

PADDING_RATIO: dict[str, float] = {"legacy": 0.375, "face": 0.5, "head": 0.625}
"""The part of a full crop's side that is margin, both sides together."""

CENTRE_POINT: dict[str, tuple[float, float, float]] = {"head": (0.0, 0.0, -2.3), "face": (0.0, -1.5, 4.2)}
"""What a crop is centred on, in coordinates of the head model: the middle of the skull, or of the face."""

MAX_OFFSET = 100.0
"""Units; a crop that lies further away from its face is taken for nonsense."""

MAX_DISTANCE = 100.0
"""Units; a face with a landmark further away from the others is taken for nonsense."""

POSE_AXES = np.array([[6.0, 0.0, -2.3], [0.0, 6.0, -2.3], [0.0, 0.0, 3.7]])
"""Ends of three arrows from the middle of the skull, to show a pose by."""


def even(value: float) -> int:
    """The even number nearest to a value (halves go to the multiple of 4)."""
    return 2 * round(value / 2)


def padding(size: int, centering: Centering, coverage: float) -> int:
    """Pixels of margin on each side of a crop of ``size`` pixels; the unit square takes what is left between them."""
    return round(size * (PADDING_RATIO[centering] + coverage - 1) / (2 * coverage))


def umeyama(points: NDArray[np.floating], target: NDArray[np.floating]) -> NDArray[np.float64]:
    """The similarity (rotation, one scale, translation; no reflection) that brings points nearest to their targets.

    Least squares after Umeyama (1991). In two dimensions the singular value decomposition of the paper has a closed
    form: with the covariance A, the best rotation is the direction of (A00 + A11, A10 - A01), and its length over the
    variance of the points is the scale. It covers the paper's special cases (reflected or collinear points).

    :param points: (n, k, 2).
    :param target: (k, 2), the same for all.
    :returns: (n, 2, 3) float64.
    :raises ArgumentValueError: a set of points that all coincide.
    """
    p = np.asarray(points, np.float64)
    q = np.asarray(target, np.float64)
    p_mean, q_mean = p.mean(axis=1), q.mean(axis=0)
    p = p - p_mean[:, None]
    covariance = np.matmul((q - q_mean).T, p)
    cosine = covariance[:, 0, 0] + covariance[:, 1, 1]
    sine = covariance[:, 1, 0] - covariance[:, 0, 1]
    spread = np.einsum("nki,nki->n", p, p)
    if not (spread > 0).all():
        raise ArgumentValueError("the landmarks of a face all lie on one spot; it cannot be aligned.")
    a, b = cosine / spread, sine / spread
    matrix = np.empty((len(p), 2, 3))
    matrix[:, 0, 0], matrix[:, 0, 1] = a, -b
    matrix[:, 1, 0], matrix[:, 1, 1] = b, a
    matrix[:, :, 2] = q_mean - np.einsum("nij,nj->ni", matrix[:, :, :2], p_mean)
    return matrix


def to_68(landmarks: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """68 points from 68 or 98, given as (..., points, 2); None for four points, which no mask can be drawn from."""
    count = landmarks.shape[-2]
    if count == 68:
        return landmarks
    return landmarks[..., POINTS_98_TO_68, :] if count == 98 else None


@dataclass(frozen=True, eq=False)
class AlignedFace:
    """One face's place in its frame. Make it with :meth:`of`.

    ``landmarks`` are (68, 2), (98, 2) or (4, 2) float32 in frame pixels; ``legacy_matrix`` is (2, 3) float64 and
    takes frame pixels to normalised space. The pose is solved when first asked for.
    """

    landmarks: NDArray[np.float32]
    legacy_matrix: NDArray[np.float64]

    @classmethod
    def of(cls, landmarks: NDArray[np.float32]) -> AlignedFace:
        """Align a face by its landmarks in frame pixels.

        :raises ArgumentValueError: a shape other than (68, 2), (98, 2), (4, 2); a point that is not finite; points
            that all coincide; a point that lies absurdly far away from the others.
        """
        landmarks = np.asarray(landmarks, np.float32)
        if landmarks.shape not in ((68, 2), (98, 2), (4, 2)):
            raise ArgumentValueError(
                f"landmarks have the shape {landmarks.shape}; (68, 2), (98, 2), (4, 2) are understood."
            )
        if not np.isfinite(landmarks).all():
            raise ArgumentValueError("a landmark is not finite.")
        points = to_68(landmarks)
        if points is None:
            matrix = umeyama(landmarks[None], UNIT_SQUARE)[0]
        else:
            matrix = umeyama(points[None, FIRST_ALIGNED_POINT:], MEAN_FACE)[0]
        # Warping to landmarks could not address such a point, and a mask would reach for it.
        distance = np.abs(landmarks.astype(np.float64) @ matrix[:, :2].T + matrix[:, 2] - 0.5).max()
        if not distance < MAX_DISTANCE:
            raise ArgumentValueError(f"a landmark lies {distance:.3g} times the face's width away from the face.")
        return cls(landmarks, matrix)

    @cached_property
    def normalized(self) -> NDArray[np.float32]:
        """The landmarks in normalised space, as many as there are."""
        return transform_points(self.landmarks, self.legacy_matrix)

    @cached_property
    def pose(self) -> Pose:
        """The head's pose (n = 1); nothing turned or moved for four points."""
        points = to_68(self.normalized)
        return no_pose(1) if points is None else estimate_pose(points[None])

    @property
    def pitch_yaw_roll(self) -> tuple[float, float, float]:
        """Degrees."""
        pitch, yaw, roll = self.pose.pitch_yaw_roll[0].tolist()
        return pitch, yaw, roll

    @cached_property
    def _offsets(self) -> dict[str, NDArray[np.float32]]:
        zero = np.zeros(2, np.float32)
        if len(self.landmarks) == 4:
            return dict.fromkeys(PADDING_RATIO, zero)
        found = self.pose.project(np.array(list(CENTRE_POINT.values())))[0] - 0.5
        # A real head turns its crop's centre by half a unit at most; landmarks that fit no head can lead anywhere.
        if not (np.abs(found) < MAX_OFFSET).all():
            raise ArgumentValueError("its landmarks fit no head in any pose, so its crop cannot be placed.")
        return {"legacy": zero, **dict(zip(CENTRE_POINT, found.astype(np.float32), strict=True))}

    def offset(self, centering: Centering) -> NDArray[np.float32]:
        """(2,): how far, in units, the crop's centre lies from that of the legacy crop.

        :raises ArgumentValueError: the landmarks fit no head.
        """
        # The legacy crop is the origin; asking for it must not cost a pose.
        return np.zeros(2, np.float32) if centering == "legacy" else self._offsets[centering]

    @property
    def axes_picture(self) -> NDArray[np.float32]:
        """(3, 2): the ends of :data:`POSE_AXES` in a head-centred crop, in units."""
        return (self.pose.project(POSE_AXES)[0] - self.offset("head")).astype(np.float32)

    @property
    def average_distance(self) -> float:
        """Mean distance per axis, in units, between the normalised points and the mean face; 0 for four points.

        Large values (above about 0.1) are a sign of misplaced landmarks.
        """
        points = to_68(self.normalized)
        return 0.0 if points is None else float(np.abs(points[FIRST_ALIGNED_POINT:] - MEAN_FACE).mean())

    @property
    def relative_eye_mouth_position(self) -> float:
        """How far, in units, the highest point of the mouth lies below the lowest of eyes and brows; 1 for four points.

        Negative for a face whose landmarks are upside down or badly misplaced.
        """
        points = to_68(self.normalized)
        if points is None:
            return 1.0
        lowest = max(points[17:27, 1].max(), points[36:48, 1].max())
        return float(points[48:68, 1].min() - lowest)

    # --- crops --------------------------------------------------------------------------------------------------------

    def crop_matrix(
        self, size: int, centering: Centering, coverage: float = 1.0, vertical_offset: float = 0.0
    ) -> NDArray[np.float64]:
        """(2, 3): takes frame pixels to pixels of a crop.

        :param size: pixels a side.
        :param coverage: fraction, above 0 and at most 1.
        :param vertical_offset: in units; positive moves the face down.
        """
        margin = padding(size, centering, coverage)
        unit = size - 2 * margin
        matrix = self.legacy_matrix.copy()
        matrix[:, 2] -= self.offset(centering)
        matrix *= unit
        matrix[:, 2] += margin
        matrix[1, 2] += vertical_offset * unit
        return matrix

    def crop_landmarks(
        self, size: int, centering: Centering, coverage: float = 1.0, vertical_offset: float = 0.0
    ) -> NDArray[np.float32]:
        """The landmarks in pixels of a crop, as many as there are; parameters as :meth:`crop_matrix`."""
        return transform_points(self.landmarks, self.crop_matrix(size, centering, coverage, vertical_offset))

    def region_of_interest(
        self, size: int, centering: Centering, coverage: float = 1.0, vertical_offset: float = 0.0
    ) -> NDArray[np.int32]:
        """(4, 2): the crop's corners in the frame: top left, bottom left, bottom right, top right; whole pixels."""
        matrix = self.crop_matrix(size, centering, coverage, vertical_offset)
        last = size - 1
        corners = np.array([[0, 0], [0, last], [last, last], [last, 0]], np.float64)
        inverse = np.linalg.inv(matrix[:, :2])
        return np.rint((corners - matrix[:, 2]) @ inverse.T).astype(np.int32)


def transform_points(points: NDArray[np.floating], matrix: NDArray[np.floating]) -> NDArray[np.float32]:
    """Points (k, 2) through a (2, 3) matrix, computed in float64, as float32."""
    return (np.asarray(points, np.float64) @ matrix[:, :2].T + matrix[:, 2]).astype(np.float32)
