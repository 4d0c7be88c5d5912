"""Drawn faces: repeatable, with landmarks that lie where the picture shows them, any identity in any state."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.errors import ArgumentValueError
from ostinato.faces.alignment import AlignedFace
from ostinato.faces.drawn import (
    DEMO_IDENTITIES,
    HAIR_STYLES,
    DrawnIdentity,
    FaceState,
    draw_face,
    draw_frame,
    frame_landmarks,
    true_swap,
)

BALD = replace(DEMO_IDENTITIES["a"], hair_style="bald", freckles=0)
STILL = FaceState(light_strength=0.0, smile=0.0)


def _near(image: np.ndarray, point: np.ndarray) -> np.ndarray:
    x, y = np.rint(point).astype(int)
    return image[y, x].astype(int)


def test_the_same_numbers_give_the_same_picture_in_any_order() -> None:
    first = [draw_face(DrawnIdentity.from_seed(s), FaceState.from_seed(7, s), 64) for s in (3, 11, 4)]
    second = [draw_face(DrawnIdentity.from_seed(s), FaceState.from_seed(7, s), 64) for s in (4, 3, 11)]
    for index, other in ((0, 1), (1, 2), (2, 0)):
        assert np.array_equal(first[index].image, second[other].image)
        assert np.array_equal(first[index].landmarks, second[other].landmarks)
        assert np.array_equal(first[index].mask, second[other].mask)


def test_identities_and_states_differ_by_their_seeds() -> None:
    people = [draw_face(DrawnIdentity.from_seed(seed), STILL, 64).image.astype(int) for seed in range(12)]
    for index, one in enumerate(people):
        assert all(np.abs(one - other).mean() > 1.5 for other in people[:index])
    states = {FaceState.from_seed(1, index) for index in range(50)} | {
        FaceState.from_seed(2, index) for index in range(50)
    }
    assert len(states) == 100


def test_the_two_people_of_the_demo_cannot_be_mistaken() -> None:
    a, b = (true_swap(DEMO_IDENTITIES[name], STILL, 64).astype(int) for name in ("a", "b"))
    assert np.abs(a - b).mean() > 30


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    style=st.sampled_from(HAIR_STYLES),
    yaw=st.floats(-35, 35),
    pitch=st.floats(-20, 20),
    roll=st.floats(-180, 180),
    expression=st.tuples(st.floats(0, 1), st.floats(-0.5, 1), st.floats(-0.5, 1), st.floats(0, 1)),
    size=st.sampled_from([16, 40, 64, 101]),
)
def test_any_identity_can_be_drawn_in_any_state(
    seed: int, style: str, yaw: float, pitch: float, roll: float, expression: tuple[float, ...], size: int
) -> None:
    opened, smile, brows, blink = expression
    state = replace(
        FaceState.from_seed(seed),
        yaw=yaw,
        pitch=pitch,
        roll=roll,
        mouth_open=opened,
        smile=smile,
        brow_raise=brows,
        blink=blink,
    )
    face = draw_face(replace(DrawnIdentity.from_seed(seed), hair_style=style), state, size)
    assert face.image.shape == (size, size, 3)
    assert face.image.dtype == face.mask.dtype == np.uint8
    assert face.mask.shape == (size, size)
    assert np.isfinite(face.landmarks).all()
    assert (face.landmarks > 0).all()
    assert (face.landmarks < size - 1).all()
    assert _near(face.mask, face.landmarks[33]) == 255  # below the nose there is skin, or beard
    assert 0.05 < (face.mask > 127).mean() < 0.6


@pytest.mark.parametrize("size", [128, 256])
def test_eyes_lips_and_brows_are_painted_at_their_landmarks(size: int) -> None:
    identity = replace(BALD, lip=(200, 40, 40), brow=(20, 120, 20), eye=(30, 30, 160), lashes=0.0)
    face = draw_face(identity, replace(STILL, yaw=12, pitch=5, roll=10, smile=0.3), size)
    for first in (36, 42):
        pupil = _near(face.image, face.landmarks[first : first + 6].mean(axis=0))
        assert pupil.max() < 90
    lip = _near(face.image, (face.landmarks[57] + face.landmarks[66]) / 2)
    assert lip[0] > 2 * lip[1]
    for point in (19, 24):
        red, green, blue = _near(face.image, face.landmarks[point])
        assert green > red
        assert green > blue


def test_closed_eyes_and_an_open_mouth_show() -> None:
    identity = replace(BALD, eye=(30, 30, 160))
    awake, asleep = (draw_face(identity, replace(STILL, blink=blink), 256) for blink in (0.0, 1.0))
    eye = slice(36, 42)
    heights = [np.ptp(face.landmarks[eye, 1]) for face in (awake, asleep)]
    assert heights[1] < 0.6 * heights[0]
    mouth = draw_face(identity, replace(STILL, mouth_open=1.0), 256)
    inside = _near(mouth.image, mouth.landmarks[[62, 66]].mean(axis=0))
    closed = _near(awake.image, awake.landmarks[[51, 62]].mean(axis=0))
    assert inside[0] < closed[0]
    assert np.ptp(mouth.landmarks[[62, 66], 1]) > 15 > np.ptp(awake.landmarks[[62, 66], 1])


@pytest.mark.parametrize("yaw", [0, 15])
def test_jaw_landmarks_lie_on_the_edge_of_the_face(yaw: float) -> None:
    face = draw_face(BALD, replace(STILL, yaw=yaw), 256)
    contour = cv2.findContours((face.mask > 127).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[0][0]
    # Turned to the right, the left jaw comes forward and lies within the outline.
    points = range(2, 15) if yaw == 0 else range(9, 15)
    distances = [abs(cv2.pointPolygonTest(contour, tuple(map(float, face.landmarks[p])), True)) for p in points]
    assert max(distances) < 2.5


@settings(max_examples=25)
@given(st.floats(-30, 30), st.floats(-15, 15), st.floats(-40, 40), st.integers(0, 500))
def test_the_pose_that_alignment_finds_is_the_one_drawn(yaw: float, pitch: float, roll: float, seed: int) -> None:
    identity = DrawnIdentity.from_seed(seed)
    neutral = AlignedFace.of(frame_landmarks(identity, STILL)).pitch_yaw_roll
    found = AlignedFace.of(frame_landmarks(identity, replace(STILL, yaw=yaw, pitch=pitch, roll=roll)))
    # The format counts yaw the other way round: a head that is turned to the image's right has a negative one.
    assert abs(found.pitch_yaw_roll[1] - neutral[1] + yaw) < 8
    angle = np.degrees(np.arctan2(found.legacy_matrix[1, 0], found.legacy_matrix[0, 0]))
    assert abs(angle + roll) < 8


def test_landmarks_of_frame_and_crop_are_the_same_points() -> None:
    face = draw_face(BALD, FaceState.from_seed(2, 9), 200, centering="face", coverage=0.8, vertical_offset=0.1)
    there = face.frame_landmarks @ face.matrix[:, :2].T + face.matrix[:, 2]
    assert np.abs(there - face.landmarks).max() < 1e-3
    expected = AlignedFace.of(face.frame_landmarks).crop_landmarks(200, "face", 0.8, 0.1)
    assert np.abs(expected - face.landmarks).max() < 1e-3


def test_a_face_in_its_frame_and_in_its_crop_is_the_same_picture() -> None:
    state = FaceState.from_seed(1, 4)
    frame = draw_frame([(DEMO_IDENTITIES["b"], state)])
    face = draw_face(DEMO_IDENTITIES["b"], state, 256)
    cut = cv2.warpAffine(frame, face.matrix, (256, 256), flags=cv2.INTER_LINEAR)
    inside = cv2.warpAffine(np.ones(frame.shape[:2], np.uint8), face.matrix, (256, 256)) > 0
    assert np.abs(cut.astype(int) - face.image)[inside].mean() < 4


def test_a_true_swap_is_the_other_person_in_the_same_state() -> None:
    state = FaceState.from_seed(3, 1)
    swap = true_swap(DEMO_IDENTITIES["b"], state, 64, coverage=0.9)
    assert np.array_equal(swap, draw_face(DEMO_IDENTITIES["b"], state, 64, centering="face", coverage=0.9).image)
    frames = [draw_frame([(DEMO_IDENTITIES[name], state)]).astype(int) for name in ("a", "b")]
    assert np.array_equal(frames[0][:40], frames[1][:40])  # the background belongs to the state


def test_light_falls_from_where_the_state_says() -> None:
    left, right = (
        draw_face(BALD, replace(STILL, light_azimuth=azimuth, light_strength=0.9), 128).image.astype(int)
        for azimuth in (-60, 60)
    )
    cheeks = (slice(60, 80), slice(42, 52)), (slice(60, 80), slice(76, 86))
    assert left[cheeks[0]].mean() > right[cheeks[0]].mean() + 10
    assert right[cheeks[1]].mean() > left[cheeks[1]].mean() + 10


def test_hair_hides_the_face_in_the_mask() -> None:
    bare = draw_face(BALD, STILL, 128).mask
    fringed = draw_face(replace(BALD, hair_style="fringe"), STILL, 128).mask
    assert ((fringed > 127).sum()) < 0.9 * (bare > 127).sum()
    assert not ((fringed > 127) & (bare < 127)).any()


def test_sizes_and_frames_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ArgumentValueError, match="at least 16"):
        draw_face(BALD, STILL, 8)
    with pytest.raises(ArgumentValueError, match="at least one person"):
        draw_frame([])


def test_a_person_far_outside_the_frame_leaves_it_as_it_is() -> None:
    away = replace(STILL, centre=(-4000.0, 9000.0))
    frame = draw_frame([(DEMO_IDENTITIES["b"], STILL), (DEMO_IDENTITIES["a"], away)])
    assert np.array_equal(frame, draw_frame([(DEMO_IDENTITIES["b"], STILL)]))
