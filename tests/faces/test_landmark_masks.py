from __future__ import annotations

import cv2
import numpy as np
import pytest

from ostinato.errors import ArgumentValueError
from ostinato.faces.alignment import AlignedFace
from ostinato.faces.landmark_masks import LANDMARK_MASKS, POINT_GROUPS, draw_landmark_mask, landmark_mask, lift_brows
from ostinato.faces.mean_face import POINTS_98_TO_68


@pytest.fixture
def points(landmarks: np.ndarray) -> np.ndarray:
    return AlignedFace.of(landmarks).crop_landmarks(128, "face")


def _by_distance(points: np.ndarray, groups: tuple[tuple[int, ...], ...], size: int) -> np.ndarray:
    """The area by the distance of every pixel to each hull: a slow, independent drawing."""
    steps = [0, 0.125, 0.375, 0.625, 0.875, 1.125, 1.375, 1.5]
    values = [255, 239, 204, 138, 68, 28, 6, 0]
    result = np.zeros((size, size))
    for group in groups:
        hull = cv2.convexHull(np.rint(points[list(group)]).astype(np.float32))
        for y in range(size):
            for x in range(size):
                outside = max(0.0, -cv2.pointPolygonTest(hull, (float(x), float(y)), True))
                result[y, x] = max(result[y, x], np.interp(outside, steps, values))
    return result


@pytest.mark.parametrize("name", ["components", "eye", "mouth"])
def test_an_area_is_the_union_of_hulls(landmarks: np.ndarray, name: str) -> None:
    small = AlignedFace.of(landmarks).crop_landmarks(48, "face")
    drawn = draw_landmark_mask(small, name, 48).astype(float)
    expected = _by_distance(small, POINT_GROUPS[name, 68], 48)
    assert np.abs(drawn - expected).mean() < 1
    assert ((drawn > 127) == (expected > 127)).mean() > 0.97


def test_extended_reaches_over_the_brows(points: np.ndarray) -> None:
    components = draw_landmark_mask(points, "components", 128)
    extended = draw_landmark_mask(points, "extended", 128)
    assert (extended >= components).mean() > 0.99
    assert np.argmax(extended.any(axis=1)) < np.argmax(components.any(axis=1)) - 3


def test_lifting_moves_the_brows_alone_and_leaves_the_argument(points: np.ndarray) -> None:
    before = points.copy()
    lifted = lift_brows(points)
    moved = np.flatnonzero((lifted != points).any(axis=1))
    assert set(moved) <= set(range(17, 27))
    assert np.array_equal(points, before)


def test_lifting_takes_half_the_distance_to_the_eye_rounded_down() -> None:
    points = np.zeros((68, 2), np.float32)
    points[0], points[36], points[17] = (0, 40), (11, 30), (9, 10)
    # ml = floor((11, 70) / 2) = (5, 35), ql = floor((16, 65) / 2) = (8, 32), lift = floor((1, -22) / 2) = (0, -11)
    assert lift_brows(points)[17].tolist() == [9, -1]


def test_98_points_draw_nearly_the_same_areas(points: np.ndarray) -> None:
    many = np.zeros((98, 2), np.float32)
    many[POINTS_98_TO_68] = points
    many[1:32:2] = (points[0:16] + points[1:17]) / 2
    many[38:42], many[47:51] = points[20], points[23]
    for between, (left, right) in {62: (61, 63), 66: (65, 67), 70: (69, 71), 74: (73, 75)}.items():
        many[between] = (many[left] + many[right]) / 2
    many[96], many[97] = many[60:68].mean(axis=0), many[68:76].mean(axis=0)
    for name in LANDMARK_MASKS:
        few, more = (draw_landmark_mask(p, name, 128).astype(int) for p in (points, many))
        assert np.abs(few - more).mean() < 3
    # One order has no groups of its own for this area, so both draw from the same 68 points.
    assert np.array_equal(draw_landmark_mask(many, "extended", 128), draw_landmark_mask(points, "extended", 128))


def test_eye_and_mouth_always_grow_and_blur(points: np.ndarray) -> None:
    for name in ("eye", "mouth"):
        plain = draw_landmark_mask(points, name, 128)
        used = landmark_mask(points, name, 128, dilation=-5, blur_kernel=0)
        expected = cv2.dilate(plain, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3)))
        assert np.array_equal(used, cv2.GaussianBlur(expected, (9, 9), 0))


def test_face_masks_obey_dilation_and_blur(points: np.ndarray) -> None:
    plain = draw_landmark_mask(points, "extended", 128)
    assert np.array_equal(landmark_mask(points, "extended", 128), plain)
    assert np.array_equal(landmark_mask(points, "extended", 128, 0, 3), cv2.GaussianBlur(plain, (3, 3), 0))
    assert (
        landmark_mask(points, "extended", 128, 5).sum() > plain.sum() > landmark_mask(points, "extended", 128, -5).sum()
    )


@pytest.mark.parametrize("size", [1, 2, 8, 16, 20, 33])
@pytest.mark.parametrize("name", LANDMARK_MASKS)
def test_small_masks_do_not_fail(landmarks: np.ndarray, size: int, name: str) -> None:
    points = AlignedFace.of(landmarks).crop_landmarks(size, "face")
    assert landmark_mask(points, name, size, 0.5, 3).shape == (size, size)


@pytest.mark.parametrize("name", LANDMARK_MASKS)
def test_points_far_outside_do_not_fail(points: np.ndarray, name: str) -> None:
    assert landmark_mask(points + 1e12, name, 32).shape == (32, 32)


def test_a_point_far_outside_pulls_the_area_its_own_way(points: np.ndarray) -> None:
    points[54, 0] = 1e12
    mask = draw_landmark_mask(points, "mouth", 128)
    assert mask[:, -1].any()
    assert not mask[:, 0].any()


def test_four_points_are_refused_with_their_number() -> None:
    with pytest.raises(ArgumentValueError, match="'eye' mask needs 68 or 98 landmarks; this face has 4"):
        landmark_mask(np.zeros((4, 2), np.float32), "eye", 64)


def test_unknown_names_are_refused(points: np.ndarray) -> None:
    with pytest.raises(ArgumentValueError, match="'nose' is no mask"):
        landmark_mask(points, "nose", 64)
