"""The pose of a head from its normalised landmarks, for one face or thousands at once.

A head model of 26 points is seen by a fixed camera, focal length 4 and centre (0.5, 0.5): the camera point (X, Y, Z)
appears at (4 X / Z + 0.5, 4 Y / Z + 0.5). The pose is the rotation and translation that bring the model's picture
nearest to the landmarks (least squares), found by Levenberg-Marquardt. The model's y axis points up and the image's
down, so the head stands at *negative* depth: an upright frontal face has a rotation near zero and a translation near
(0, 3, -57).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.faces.mean_face import HEAD_MODEL, HEAD_MODEL_POINTS

FOCAL_LENGTH = 4.0
PRINCIPAL_POINT = 0.5
START_DEPTH = -57.0
FIRST_DAMPING = 1e-3
MAX_STEPS = 40
SMALLEST_STEP = 1e-5
"""A face is done when no component of its step is larger: radians, or units of the model, which is 57 units away."""
CHUNK = 4096
"""Faces solved together; a step needs about 6 KB a face."""

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pose:
    """Poses of n heads: rotation matrices (n, 3, 3) and translations (n, 3), float64."""

    rotation: Array
    translation: Array

    @property
    def rotation_vector(self) -> Array:
        """(n, 3): the rotation's axis times its angle in radians."""
        return _rotation_vectors(self.rotation)

    @property
    def pitch_yaw_roll(self) -> Array:
        """(n, 3): degrees about the x, y and z axis (Euler angles of R = Rz Ry Rx)."""
        r = self.rotation
        flat = np.hypot(r[:, 2, 1], r[:, 2, 2])
        pitch = np.arctan2(r[:, 2, 1], r[:, 2, 2])
        yaw = np.arctan2(-r[:, 2, 0], flat)
        roll = np.arctan2(r[:, 1, 0], r[:, 0, 0])
        return np.degrees(np.stack([pitch, yaw, roll], axis=1))

    def project(self, points: Array) -> Array:
        """Pictures of model points (k, 3) for every head: (n, k, 2) in normalised space."""
        camera = points @ self.rotation.transpose(0, 2, 1) + self.translation[:, None]
        return FOCAL_LENGTH * camera[..., :2] / camera[..., 2:] + PRINCIPAL_POINT


def estimate_pose(landmarks: NDArray[np.floating]) -> Pose:
    """The poses of n faces.

    :param landmarks: (n, 68, 2) normalised landmarks (see :class:`ostinato.faces.alignment.AlignedFace`). Values that
        are not finite count as 0.
    """
    targets = np.asarray(landmarks, np.float64)[:, HEAD_MODEL_POINTS]
    targets = np.where(np.isfinite(targets), targets, 0.0)
    rotations = np.empty((len(targets), 3, 3))
    translations = np.empty((len(targets), 3))
    for start in range(0, len(targets), CHUNK):
        part = slice(start, start + CHUNK)
        rotations[part], translations[part] = _solve(targets[part] - PRINCIPAL_POINT)
    return Pose(rotations, translations)


def no_pose(count: int) -> Pose:
    """The pose of faces that have none to find (four points): no rotation, no translation."""
    return Pose(np.tile(np.eye(3), (count, 1, 1)), np.zeros((count, 3)))


def _solve(targets: Array) -> tuple[Array, Array]:
    """Levenberg-Marquardt over (n, 26, 2) targets, measured from the principal point.

    A step (w, s) turns R into C(w) R (C: see :func:`_rotations`) and t into t + s, so the derivative of a camera
    point R p + t with respect to w is the cross product w x (R p): no derivative of the rotation vector is needed,
    and no pose is singular.
    """
    count = len(targets)
    found_rotation = np.tile(np.eye(3), (count, 1, 1))
    found_translation = np.tile([0.0, 0.0, START_DEPTH], (count, 1))
    # The arrays below belong to the faces that are not finished, whose numbers are in ``active``.
    active = np.arange(count)
    rotation, translation = found_rotation, found_translation
    damping = np.full(count, FIRST_DAMPING)
    turned = np.tile(HEAD_MODEL, (count, 1, 1))
    picture, inverse_depth = _picture(turned, translation)
    residual = picture - targets
    cost = np.einsum("nij,nij->n", residual, residual)
    for _ in range(MAX_STEPS):
        jacobian = _jacobian(turned, picture, inverse_depth)
        transposed = jacobian.transpose(0, 2, 1)
        normal = transposed @ jacobian
        gradient = transposed @ residual.reshape(len(active), -1, 1)
        diagonal = np.einsum("nii->ni", normal)
        diagonal += damping[:, None] * diagonal  # einsum hands out a view, so this changes ``normal``
        step = -np.linalg.solve(normal, gradient)[..., 0]
        new_rotation = _rotations(step[:, :3]) @ rotation
        new_translation = translation + step[:, 3:]
        new_turned = HEAD_MODEL @ new_rotation.transpose(0, 2, 1)
        new_picture, new_inverse_depth = _picture(new_turned, new_translation)
        new_residual = new_picture - targets
        new_cost = np.einsum("nij,nij->n", new_residual, new_residual)
        better = new_cost <= cost  # False where the cost is NaN, as it should be
        damping = np.where(better, damping * 0.1, damping * 10.0)
        old = (rotation, translation, turned, picture, inverse_depth, residual, cost)
        new = (new_rotation, new_translation, new_turned, new_picture, new_inverse_depth, new_residual, new_cost)
        state = new if better.all() else _picked(better, new, old)
        rotation, translation, turned, picture, inverse_depth, residual, cost = state
        going_on = (np.abs(step).max(axis=1) >= SMALLEST_STEP) & (damping < 1e12)
        if going_on.all():
            continue
        done = ~going_on
        found_rotation[active[done]], found_translation[active[done]] = rotation[done], translation[done]
        if done.all():
            return found_rotation, found_translation
        active, targets, damping = active[going_on], targets[going_on], damping[going_on]
        rotation, translation, turned, picture, inverse_depth, residual, cost = (part[going_on] for part in state)
    found_rotation[active], found_translation[active] = rotation, translation
    return found_rotation, found_translation


def _picked(choice: NDArray[np.bool_], new: tuple[Array, ...], old: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(
        np.where(choice.reshape(-1, *[1] * (there.ndim - 1)), there, before)
        for there, before in zip(new, old, strict=True)
    )


def _picture(turned: Array, translation: Array) -> tuple[Array, Array]:
    """Pictured points relative to the principal point, (n, 26, 2), and the inverse depths (n, 26)."""
    camera = turned + translation[:, None]
    inverse_depth = 1.0 / camera[..., 2]
    return (FOCAL_LENGTH * inverse_depth)[..., None] * camera[..., :2], inverse_depth


def _jacobian(turned: Array, picture: Array, inverse_depth: Array) -> Array:
    """(n, 52, 6): derivatives of the pictured x and y with respect to w and s.

    With u = f X / Z: du = (f / Z) dX - (u / Z) dZ, and likewise for y; dX, dY, dZ are those of w x q + s, q = R p.
    """
    qx, qy, qz = turned[..., 0], turned[..., 1], turned[..., 2]
    a = FOCAL_LENGTH * inverse_depth
    bx, by = picture[..., 0] * inverse_depth, picture[..., 1] * inverse_depth
    result = np.zeros((*turned.shape[:2], 2, 6))
    # (w x q) = (wy qz - wz qy, wz qx - wx qz, wx qy - wy qx)
    result[..., 0, 0] = -bx * qy
    result[..., 0, 1] = a * qz + bx * qx
    result[..., 0, 2] = -a * qy
    result[..., 0, 3] = a
    result[..., 0, 5] = -bx
    result[..., 1, 0] = -a * qz - by * qy
    result[..., 1, 1] = by * qx
    result[..., 1, 2] = a * qx
    result[..., 1, 4] = a
    result[..., 1, 5] = -by
    return result.reshape(len(turned), -1, 6)


def _rotations(steps: Array) -> Array:
    """Rotation matrices (n, 3, 3) for small steps (n, 3): Cayley's map.

    It agrees with the exponential to first order, which is all a step needs, is a rotation for every step, and has no
    special case at zero.
    """
    half = steps * 0.5
    x, y, z = half[:, 0], half[:, 1], half[:, 2]
    cross = np.zeros((len(steps), 3, 3))
    cross[:, 0, 1], cross[:, 0, 2], cross[:, 1, 2] = -z, y, -x
    cross[:, 1, 0], cross[:, 2, 0], cross[:, 2, 1] = z, -y, x
    scale = 2.0 / (1.0 + x * x + y * y + z * z)
    return np.eye(3) + scale[:, None, None] * (cross + cross @ cross)


def _rotation_vectors(matrices: Array) -> Array:
    """Rotation vectors of rotation matrices, for angles below half a turn."""
    axis = np.stack(
        [
            matrices[:, 2, 1] - matrices[:, 1, 2],
            matrices[:, 0, 2] - matrices[:, 2, 0],
            matrices[:, 1, 0] - matrices[:, 0, 1],
        ],
        axis=1,
    )
    sine = np.linalg.norm(axis, axis=1) / 2
    angle = np.arctan2(sine, (np.trace(matrices, axis1=1, axis2=2) - 1) / 2)
    scale = np.where(sine < 1e-12, 0.5, angle / np.where(sine < 1e-12, 1.0, 2 * sine))
    return axis * scale[:, None]
