from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import ArgumentValueError
from ostinato.faces.alignment import AlignedFace, padding
from ostinato.faces.cropping import crop_aligned, crop_frame, crop_width, cut_square, resize_square
from ostinato.faces.metadata import FaceMetadata

Make = Callable[..., FaceMetadata]
CENTERINGS = ("legacy", "face", "head")


def _smooth_frame(size: int) -> np.ndarray:
    y, x = np.mgrid[0:size, 0:size].astype(float)
    return np.clip(np.stack([x * 0.8, y * 0.8, 120 + 60 * np.sin((x + y) / 40)], axis=2), 0, 255).astype(np.uint8)


@given(st.integers(-30, 30), st.integers(-30, 30), st.integers(1, 40))
def test_a_square_is_cut_and_padded_with_black(left: int, top: int, width: int) -> None:
    image = np.random.default_rng(0).integers(1, 255, (20, 20, 3), np.uint8)
    padded = np.zeros((120, 120, 3), np.uint8)
    padded[50:70, 50:70] = image
    expected = padded[50 + top : 50 + top + width, 50 + left : 50 + left + width]
    assert np.array_equal(cut_square(image, left, top, width), expected)


def test_a_square_inside_is_not_copied() -> None:
    image = np.zeros((20, 20), np.uint8)
    assert np.shares_memory(cut_square(image, 2, 3, 10), image)


def test_enlarging_is_bicubic_and_shrinking_averages() -> None:
    image = np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)
    assert np.array_equal(resize_square(image, 32), image)
    assert np.array_equal(resize_square(image, 48), cv2.resize(image, (48, 48), interpolation=cv2.INTER_CUBIC))
    mean = image.reshape(16, 2, 16, 2, 3).mean(axis=(1, 3))
    assert np.abs(resize_square(image, 16) - mean).max() <= 0.5


@pytest.mark.parametrize("source", CENTERINGS)
@pytest.mark.parametrize("wanted", CENTERINGS)
@pytest.mark.parametrize(("coverage", "offset"), [(1.0, 0.0), (0.75, 0.0), (1.0, 0.1), (0.875, -0.15)])
def test_cutting_a_face_image_agrees_with_cutting_the_frame(
    make_metadata: Make, landmarks: np.ndarray, source: str, wanted: str, coverage: float, offset: float
) -> None:
    frame = _smooth_frame(300)
    aligned = AlignedFace.of(landmarks)
    metadata = make_metadata(version=1.0 if source == "legacy" else 2.4)
    side = 256
    face = crop_frame(frame, aligned, side, metadata.centering)
    there = crop_frame(np.full_like(frame, 255), aligned, side, metadata.centering)
    cut = crop_aligned(face, metadata, 64, wanted, coverage, offset)  # type: ignore[arg-type]
    known = crop_aligned(there, metadata, 64, wanted, coverage, offset)  # type: ignore[arg-type]
    direct = crop_frame(frame, aligned, 64, wanted, coverage, offset)  # type: ignore[arg-type]
    # Whole source pixels on one side and none on the other; rims are black on one side only.
    inside = cv2.erode(known, np.ones((5, 5), np.uint8)) == 255
    assert inside.mean() > 0.25
    difference = np.abs(cut.astype(int) - direct)[inside]
    assert difference.max() <= 9  # a shift by one pixel of the crop is 3
    assert difference.mean() < 2.5


def test_the_same_centering_at_full_coverage_is_only_resized(make_metadata: Make) -> None:
    image = np.random.default_rng(0).integers(0, 255, (80, 80, 3), np.uint8)
    assert np.array_equal(crop_aligned(image, make_metadata(), 80, "head"), image)
    assert np.array_equal(crop_aligned(image, make_metadata(version=1.0), 40, "legacy"), resize_square(image, 40))


def test_a_vertical_offset_moves_even_a_full_crop_of_the_same_centering(make_metadata: Make) -> None:
    image = np.random.default_rng(0).integers(1, 255, (160, 160, 3), np.uint8)
    moved = crop_aligned(image, make_metadata(), 160, "head", 1.0, 0.25)
    shift = round(0.25 * (160 - 2 * padding(160, "head", 1.0)))
    assert np.array_equal(moved[shift:], image[:-shift])
    assert not moved[:shift].any()


def test_width_of_a_crop() -> None:
    assert crop_width(256, "head", "face", 1.0) == 192
    assert crop_width(256, "head", "head", 1.0) == 256
    assert crop_width(256, "head", "legacy", 0.625) == 96
    assert crop_width(100, "legacy", "head", 1.0) == 166


def test_faces_must_be_square(make_metadata: Make) -> None:
    with pytest.raises(ArgumentValueError, match="square"):
        crop_aligned(np.zeros((10, 12, 3), np.uint8), make_metadata(), 8)
