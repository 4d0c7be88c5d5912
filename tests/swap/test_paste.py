"""Putting a crop back where it was cut from."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.faces.alignment import AlignedFace
from ostinato.faces.cropping import crop_aligned, crop_frame
from ostinato.faces.drawn import DEMO_IDENTITIES, FaceState, draw_face, draw_frame
from ostinato.faces.drawn.folder import drawn_metadata
from ostinato.faces.sample import CropSettings
from ostinato.swap.paste import chain, crop_to_face, enlarge, feather, paste

IDENTITY = DEMO_IDENTITIES["b"]
STATE = FaceState.from_seed(4, 2)
CROPS = [
    CropSettings(64),
    CropSettings(64, "face", 0.8),
    CropSettings(64, "head", 1.0),
    CropSettings(64, "head", 0.9, 0.1),
    CropSettings(64, "legacy", 0.7, -0.2),
]


@pytest.mark.parametrize("crop", CROPS, ids=str)
@pytest.mark.parametrize("side", [100, 256])
def test_a_crop_pasted_back_unchanged_leaves_the_face_image_as_it_was(crop: CropSettings, side: int) -> None:
    drawn = draw_face(IDENTITY, STATE, side)
    metadata = drawn_metadata(drawn, STATE, "frame.png")
    aligned = AlignedFace.of(metadata.landmarks)
    size = side  # large enough that cutting and pasting lose little
    cut = crop_aligned(drawn.image, metadata, size, crop.centering, crop.coverage, crop.vertical_offset)
    picture = drawn.image.copy()
    matrix = crop_to_face(side, "head", aligned, crop, size)
    inside = feather(None, size)
    assert paste(picture, cut.astype(np.float32) / 255, inside, matrix)
    difference = np.abs(picture.astype(int) - drawn.image.astype(int))
    assert difference.mean() < 1.0
    # A shift by half a pixel would show as much more than this.
    shifted = drawn.image.copy()
    moved = matrix.copy()
    moved[:, 2] += 1.0
    paste(shifted, cut.astype(np.float32) / 255, inside, moved)
    assert np.abs(shifted.astype(int) - drawn.image.astype(int)).mean() > 2 * difference.mean()


def test_a_face_lands_in_its_frame_where_it_was() -> None:
    frame = draw_frame([(IDENTITY, STATE)])
    drawn = draw_face(IDENTITY, STATE, 256)
    metadata = drawn_metadata(drawn, STATE, "frame.png")
    aligned = AlignedFace.of(metadata.landmarks)
    crop = CropSettings(128)
    cut = crop_frame(frame, aligned, 128)
    to_frame = cv2.invertAffineTransform(aligned.crop_matrix(256, "head"))
    matrix = chain(crop_to_face(256, "head", aligned, crop, 128), to_frame)
    picture = frame.copy()
    assert paste(picture, cut.astype(np.float32) / 255, feather(None, 128), matrix)
    changed = np.abs(picture.astype(int) - frame.astype(int))
    assert changed.mean() < 0.5
    corners = np.array([[0, 0, 1], [127, 127, 1]]) @ matrix.T
    low, high = np.floor(corners.min(axis=0)).astype(int), np.ceil(corners.max(axis=0)).astype(int)
    outside = np.ones(frame.shape[:2], bool)
    outside[low[1] - 60 : high[1] + 60, low[0] - 60 : high[0] + 60] = False
    assert not changed[outside].any()


@given(st.integers(1, 400), st.integers(1, 400))
def test_enlarging_makes_the_outer_edges_meet(small: int, large: int) -> None:
    matrix = enlarge(large / small)
    edges = np.array([[-0.5, -0.5, 1], [small - 0.5, small - 0.5, 1]]) @ matrix.T
    assert np.allclose(edges, [[-0.5, -0.5], [large - 0.5, large - 0.5]])


def test_chaining_is_one_after_the_other() -> None:
    first, second = np.array([[2.0, 0, 3], [0, 2, 4]]), np.array([[0.0, -1, 5], [1, 0, 6]])
    point = np.array([7.0, 8.0, 1.0])
    between = np.append(first @ point, 1.0)
    assert np.allclose(chain(first, second) @ point, second @ between)


@given(st.integers(8, 160), st.integers(0, 2**31))
def test_a_feathered_mask_never_reaches_outside_the_mask_or_to_the_crops_edge(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = np.zeros((size, size), np.uint8)
    x, y = rng.integers(0, size, (2, 2))
    cv2.ellipse(mask, (int(x[0]), int(y[0])), (int(x[1]) + 1, int(y[1]) + 1), 0, 0, 360, 255, -1)
    alpha = feather(mask, size)
    assert alpha.dtype == np.float32
    assert 0 <= alpha.min() <= alpha.max() <= 1
    assert not alpha[mask == 0].any()
    assert not alpha[[0, -1]].any()
    assert not alpha[:, [0, -1]].any()


def test_without_a_mask_all_but_the_border_is_used() -> None:
    alpha = feather(None, 100)
    assert (alpha[10:90, 10:90] == 1).all()
    assert not alpha[0].any()
    assert not feather(np.zeros((50, 50), np.uint8), 50).any()


@pytest.mark.parametrize("scale", [0.2, 0.5, 1.0, 3.0])
def test_a_plain_colour_stays_that_colour_at_every_scale(scale: float) -> None:
    picture = np.zeros((200, 200, 3), np.uint8)
    face = np.full((50, 50, 3), 0.6, np.float32)
    assert paste(
        picture, face, np.ones((50, 50), np.float32), chain(enlarge(scale), np.array([[1.0, 0, 20], [0, 1, 30]]))
    )
    used = picture[picture.any(axis=-1)]
    assert abs(int(used.max()) - 153) <= 1
    assert (picture == 153).all(axis=-1).sum() >= (50 * scale - 3) ** 2
    assert picture.any(axis=-1).sum() <= (50 * scale + 2) ** 2


@pytest.mark.parametrize("shift", [(-1000.0, 0.0), (0.0, 1000.0), (-49.5, -49.5)])
def test_a_face_half_or_wholly_outside_changes_what_it_reaches(shift: tuple[float, float]) -> None:
    picture = np.zeros((40, 60, 3), np.uint8)
    matrix = np.array([[1.0, 0, shift[0]], [0, 1.0, shift[1]]])
    reached = paste(picture, np.ones((50, 50, 3), np.float32), np.ones((50, 50), np.float32), matrix)
    assert reached == picture.any()
    assert reached == (abs(shift[0]) < 100 and abs(shift[1]) < 100)


def test_a_face_that_shrinks_is_averaged_and_not_sampled() -> None:
    stripes = np.zeros((100, 100, 3), np.float32)
    stripes[:, ::2] = 1
    picture = np.zeros((40, 40, 3), np.uint8)
    paste(
        picture, stripes, np.ones((100, 100), np.float32), chain(enlarge(0.25), np.array([[1.0, 0, 8.125], [0, 1, 8]]))
    )
    middle = picture[14:26, 14:26].astype(int)
    assert abs(middle.mean() - 127.5) < 2
    assert np.ptp(middle) < 4
