from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.faces.alignment import AlignedFace
from ostinato.faces.mean_face import HEAD_MODEL, HEAD_MODEL_POINTS
from ostinato.faces.pose import Pose, estimate_pose, no_pose

CAMERA = np.array([[4, 0, 0.5], [0, 4, 0.5], [0, 0, 1]], np.float64)


def _landmarks(rotation_vector: np.ndarray, translation: np.ndarray) -> np.ndarray:
    """68 points of which the 26 that matter show the model exactly at a pose."""
    rotation = cv2.Rodrigues(np.asarray(rotation_vector, np.float64))[0]
    points = np.zeros((68, 2))
    points[HEAD_MODEL_POINTS] = Pose(rotation[None], np.asarray(translation)[None]).project(HEAD_MODEL)[0]
    return points


@given(
    st.tuples(*[st.floats(-0.7, 0.7)] * 3),
    st.tuples(st.floats(-4, 4), st.floats(-2, 6), st.floats(-75, -45)),
)
def test_a_known_pose_is_found_again(rotation: tuple[float, ...], translation: tuple[float, ...]) -> None:
    pose = estimate_pose(_landmarks(np.array(rotation), np.array(translation))[None])
    assert np.allclose(pose.rotation_vector[0], rotation, atol=1e-4)
    assert np.allclose(pose.translation[0], translation, atol=1e-2)


def test_noisy_points_agree_with_the_iterative_solver_of_opencv(landmarks: np.ndarray) -> None:
    normal = AlignedFace.of(landmarks).normalized
    noisy = normal[None] + np.random.default_rng(1).normal(0, 0.02, (20, 68, 2))
    found = estimate_pose(noisy)
    for number in range(20):
        _, rotation, translation = cv2.solvePnP(
            HEAD_MODEL.copy(), noisy[number][HEAD_MODEL_POINTS], CAMERA, np.zeros((4, 1)), flags=cv2.SOLVEPNP_ITERATIVE
        )
        assert np.allclose(found.rotation_vector[number], rotation[:, 0], atol=2e-4)
        assert np.allclose(found.translation[number], translation[:, 0], atol=2e-3)


def test_many_at_once_are_the_same_as_one_by_one(landmarks: np.ndarray) -> None:
    normal = AlignedFace.of(landmarks).normalized
    noise = np.random.default_rng(2).normal(0, [[[0.001]], [[0.05]], [[0.02]]], (3, 68, 2))
    together = estimate_pose(normal[None] + noise)
    for number in range(3):
        alone = estimate_pose((normal + noise[number])[None])
        assert np.allclose(together.rotation[number], alone.rotation[0], atol=1e-9)
        assert np.allclose(together.translation[number], alone.translation[0], atol=1e-7)


def test_points_that_are_not_finite_count_as_zero(landmarks: np.ndarray) -> None:
    normal = AlignedFace.of(landmarks).normalized.astype(np.float64)
    broken, zeroed = normal.copy(), normal.copy()
    broken[8], zeroed[8] = np.nan, 0
    assert np.array_equal(estimate_pose(broken[None]).rotation, estimate_pose(zeroed[None]).rotation)


@pytest.mark.parametrize(
    "points", [np.zeros((68, 2)), np.full((68, 2), 1e6), np.random.default_rng(0).normal(size=(68, 2))]
)
def test_nonsense_ends_in_a_rotation_all_the_same(points: np.ndarray) -> None:
    pose = estimate_pose(points[None])
    assert np.isfinite(pose.translation).all()
    assert np.allclose(pose.rotation[0] @ pose.rotation[0].T, np.eye(3), atol=1e-9)


def test_angles_are_degrees_about_the_axes() -> None:
    for axis in range(3):
        vector = np.zeros(3)
        vector[axis] = np.radians(20)
        pose = Pose(cv2.Rodrigues(vector)[0][None], np.zeros((1, 3)))
        expected = np.zeros(3)
        expected[axis] = 20
        assert np.allclose(pose.pitch_yaw_roll[0], expected)


def test_no_pose_is_at_rest() -> None:
    pose = no_pose(2)
    assert not pose.rotation_vector.any()
    assert not pose.pitch_yaw_roll.any()
    assert not pose.translation.any()


def test_no_faces_have_no_poses() -> None:
    assert estimate_pose(np.zeros((0, 68, 2))).rotation.shape == (0, 3, 3)
