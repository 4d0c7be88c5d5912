from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import ArgumentValueError
from ostinato.faces.alignment import AlignedFace, even, padding, to_68, transform_points, umeyama
from ostinato.faces.mean_face import MEAN_FACE, POINTS_98_TO_68
from ostinato.faces.pose import Pose


def _umeyama_by_the_paper(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Umeyama (1991), equations 38 to 42, for one set of points."""
    p, q = p.astype(float), q.astype(float)
    p_mean, q_mean = p.mean(0), q.mean(0)
    u, s, vt = np.linalg.svd((q - q_mean).T @ (p - p_mean) / len(p))
    d = np.array([1.0, 1.0])
    if np.linalg.det(u) * np.linalg.det(vt) < 0:
        d[1] = -1
    rotation = u @ np.diag(d) @ vt
    scale = (s * d).sum() / p.var(0).sum()
    return np.column_stack([scale * rotation, q_mean - scale * rotation @ p_mean])


@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.sampled_from(["any", "mirrored", "line"]))
def test_similarity_is_the_papers(seed: int, count: int, kind: str) -> None:
    random = np.random.default_rng(seed)
    points = random.normal(size=(count, 2)) * 40 + 100
    target = (
        random.normal(size=(count, 2))
        if kind == "any"
        else points * [-0.01, 0.01] + random.normal(size=(count, 2)) * 1e-3
    )
    if kind == "line":
        points[:, 1] = points[:, 0] * 0.5
    assert np.allclose(umeyama(points[None], target)[0], _umeyama_by_the_paper(points, target), atol=1e-8)


@given(st.floats(-3, 3), st.floats(0.01, 20), st.floats(-500, 500), st.floats(-500, 500))
def test_a_moved_mean_face_is_brought_back_exactly(angle: float, scale: float, x: float, y: float) -> None:
    rotation = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    moved = MEAN_FACE @ rotation.T + [x, y]
    matrix = umeyama(moved[None], MEAN_FACE)[0]
    assert np.allclose(moved @ matrix[:, :2].T + matrix[:, 2], MEAN_FACE, atol=1e-6)


def test_points_on_one_spot_are_refused() -> None:
    with pytest.raises(ArgumentValueError, match="one spot"):
        AlignedFace.of(np.full((68, 2), 7, np.float32))


@pytest.mark.parametrize("shape", [(51, 2), (26, 3), (68, 3), (136,), (2, 68)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentValueError, match="shape"):
        AlignedFace.of(np.zeros(shape, np.float32))


def test_points_that_are_not_finite_are_refused(landmarks: np.ndarray) -> None:
    landmarks[3] = np.nan
    with pytest.raises(ArgumentValueError, match="finite"):
        AlignedFace.of(landmarks)


@pytest.mark.parametrize("far", [1e6, 1e9, 3e38])
def test_a_landmark_absurdly_far_away_is_refused(landmarks: np.ndarray, far: float) -> None:
    landmarks[3] = (far, -far)
    with pytest.raises(ArgumentValueError, match="times the face's width away"):
        AlignedFace.of(landmarks)
    landmarks[3] = (2000, -2000)
    assert np.isfinite(AlignedFace.of(landmarks).crop_landmarks(64, "face")).all()


def test_alignment_agrees_with_recorded_numbers(recorded_face: dict[str, Any]) -> None:
    face = AlignedFace.of(np.array(recorded_face["landmarks"], np.float32))
    assert np.allclose(face.legacy_matrix, recorded_face["legacy_matrix"], atol=1e-6)
    assert face.average_distance == pytest.approx(recorded_face["average_distance"], abs=1e-6)
    assert face.relative_eye_mouth_position == pytest.approx(recorded_face["relative_eye_mouth_position"], abs=1e-6)
    assert np.allclose(face.pose.rotation_vector[0], recorded_face["pose_rotation"], atol=2e-5)
    assert np.allclose(face.pose.translation[0], recorded_face["pose_translation"], atol=1e-4)
    assert np.allclose(face.pitch_yaw_roll, recorded_face["pitch_yaw_roll"], atol=1e-3)
    assert np.allclose(face.axes_picture, recorded_face["axes_picture"], atol=1e-5)
    for centering, offset in recorded_face["offsets"].items():
        assert np.allclose(face.offset(centering), offset, atol=1e-5)
        assert face.offset(centering).dtype == np.float32


def test_crops_agree_with_recorded_numbers(recorded_face: dict[str, Any]) -> None:
    face = AlignedFace.of(np.array(recorded_face["landmarks"], np.float32))
    for crop in recorded_face["crops"]:
        size, centering, coverage = crop["size"], crop["centering"], crop["coverage"]
        offset = crop["vertical_offset"]
        assert padding(size, centering, coverage) == crop["padding"]
        assert np.allclose(face.crop_matrix(size, centering, coverage), crop["matrix_without_offset"], atol=5e-4)
        found = face.crop_landmarks(size, centering, coverage, offset)
        assert np.allclose(found[30], crop["landmark_30"], atol=6e-4)
        region = face.region_of_interest(size, centering, coverage, offset)
        assert np.abs(region - np.array(crop["region_of_interest"])).max() <= 1
        assert region.dtype == np.int32


@given(st.integers(0, 2**32 - 1))
def test_random_points_have_a_crop_too(seed: int) -> None:
    face = AlignedFace.of(np.random.default_rng(seed).normal(size=(68, 2)).astype(np.float32) * 100)
    for centering in ("legacy", "face", "head"):
        assert np.isfinite(face.crop_landmarks(64, centering)).all()  # type: ignore[arg-type]


def test_a_crop_that_would_lie_nowhere_is_refused(landmarks: np.ndarray) -> None:
    face = AlignedFace.of(landmarks)
    # A head whose middle is in the camera: no landmarks are known to lead here, and a solver promises nothing.
    face.__dict__["pose"] = Pose(np.eye(3)[None], np.array([[0.0, 0.0, 2.3]]))
    with np.errstate(all="ignore"), pytest.raises(ArgumentValueError, match="fit no head"):
        face.crop_matrix(64, "head")
    assert np.isfinite(face.crop_matrix(64, "legacy")).all()


def test_98_points_align_as_the_68_among_them(landmarks: np.ndarray) -> None:
    many = np.random.default_rng(0).normal(size=(98, 2)).astype(np.float32) * 50
    many[POINTS_98_TO_68] = landmarks
    few, more = AlignedFace.of(landmarks), AlignedFace.of(many)
    assert np.array_equal(few.legacy_matrix, more.legacy_matrix)
    assert np.array_equal(few.offset("head"), more.offset("head"))
    assert few.relative_eye_mouth_position == more.relative_eye_mouth_position
    assert more.normalized.shape == (98, 2)
    mapped = to_68(more.crop_landmarks(64, "face"))
    assert mapped is not None
    assert np.array_equal(mapped, few.crop_landmarks(64, "face"))


def test_four_points_have_no_pose() -> None:
    face = AlignedFace.of(np.array([[95, 55], [215, 60], [210, 180], [90, 175]], np.float32))
    assert np.allclose(face.normalized, [[0, 0], [1, 0], [1, 1], [0, 1]], atol=1e-6)
    assert face.pitch_yaw_roll == (0, 0, 0)
    assert (face.average_distance, face.relative_eye_mouth_position) == (0, 1)
    assert not any(face.offset(centering).any() for centering in ("legacy", "face", "head"))
    assert to_68(face.landmarks) is None


def test_vertical_offset_moves_the_face_down_by_units(landmarks: np.ndarray) -> None:
    face = AlignedFace.of(landmarks)
    unit = 128 - 2 * padding(128, "face", 1.0)
    moved = face.crop_landmarks(128, "face", 1.0, 0.1) - face.crop_landmarks(128, "face", 1.0, 0.0)
    assert np.allclose(moved, [0, 0.1 * unit], atol=1e-4)


@pytest.mark.parametrize(("value", "result"), [(0, 0), (1, 0), (3, 4), (5, 4), (6.9, 6), (7.1, 8), (96, 96)])
def test_even_rounds_halves_to_multiples_of_four(value: float, result: int) -> None:
    assert even(value) == result


def test_points_are_transformed_in_double_precision() -> None:
    points = np.array([[1e6, 1.0]], np.float32)
    assert transform_points(points, np.array([[1.0, 0, -1e6], [0, 1, 0.25]])).tolist() == [[0.0, 1.25]]
