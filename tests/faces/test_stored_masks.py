from __future__ import annotations

import numpy as np
import pytest

from ostinato.faces.alignment import AlignedFace
from ostinato.faces.cropping import crop_frame
from ostinato.faces.metadata import Centering, StoredMask
from ostinato.faces.stored_masks import cut_to_crop, stored_mask


def _disc_in_frame() -> np.ndarray:
    y, x = np.mgrid[0:300, 0:300]
    distance = np.hypot(x - 145, y - 120)
    return np.clip((45 - distance) * 32 + 128, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("stored", ["face", "head"])
@pytest.mark.parametrize("wanted", ["legacy", "face", "head"])
@pytest.mark.parametrize(("coverage", "offset"), [(1.0, 0.0), (1.0, -0.15), (0.8, 0.1)])
def test_a_mask_lies_where_the_picture_shows_it(
    landmarks: np.ndarray, stored: Centering, wanted: Centering, coverage: float, offset: float
) -> None:
    aligned = AlignedFace.of(landmarks)
    frame = _disc_in_frame()
    mask = StoredMask.pack(crop_frame(frame, aligned, 256, stored), np.eye(3), stored)
    direct = crop_frame(frame, aligned, 96, wanted, coverage, offset).astype(float)
    found = stored_mask(mask, aligned, 96, wanted, coverage, offset).astype(float)
    # One is cut on whole pixels and the other is not, and both round the size of a unit, so they may differ by a pixel.
    assert np.abs(_middle(found) - _middle(direct)).max() < 1
    assert found.sum() == pytest.approx(direct.sum(), rel=0.08)


def _middle(mask: np.ndarray) -> np.ndarray:
    places = np.mgrid[0 : mask.shape[0], 0 : mask.shape[1]]
    return (places * mask).sum(axis=(1, 2)) / mask.sum()


def test_a_vertical_offset_is_never_ignored(landmarks: np.ndarray) -> None:
    aligned = AlignedFace.of(landmarks)
    pixels = np.zeros((128, 128), np.uint8)
    pixels[60:70] = 255
    mask = StoredMask.pack(pixels, np.eye(3), "face")
    assert np.array_equal(stored_mask(mask, aligned, 128, "face"), pixels)
    moved = stored_mask(mask, aligned, 128, "face", 1.0, 0.25)
    assert np.flatnonzero(moved[:, 0]).tolist() == list(range(76, 86))  # a quarter of 64 pixels down


def test_beyond_the_stored_mask_is_zero(landmarks: np.ndarray) -> None:
    mask = StoredMask.pack(np.full((128, 128), 255, np.uint8), np.eye(3), "face")
    found = stored_mask(mask, AlignedFace.of(landmarks), 128, "head")
    rim = np.concatenate([found[:8].ravel(), found[-8:].ravel(), found[:, :8].ravel(), found[:, -8:].ravel()])
    assert (rim == 0).mean() > 0.6
    assert found[64, 64] == 255


@pytest.mark.parametrize("size", [64, 96, 200])
def test_blur_and_dilation_follow_the_stored_size(landmarks: np.ndarray, size: int) -> None:
    aligned = AlignedFace.of(landmarks)
    pixels = np.zeros((256, 256), np.uint8)
    pixels[100:156, 100:156] = 255
    mask = StoredMask.pack(pixels, np.eye(3), "face")
    plain = stored_mask(mask, aligned, size, "face")
    assert stored_mask(mask, aligned, size, "face", dilation=5).sum() > plain.sum()
    assert stored_mask(mask, aligned, size, "face", dilation=-5).sum() < plain.sum()
    blurred = stored_mask(mask, aligned, 256, "face", blur_kernel=3)
    assert ((blurred > 0) & (blurred < 255))[
        128
    ].sum() == 12  # a kernel of 7 reaches 3 pixels to each side of two edges


def test_the_cut_is_as_wide_as_the_crop(landmarks: np.ndarray) -> None:
    mask = StoredMask.pack(np.zeros((192, 192), np.uint8), np.eye(3), "head")
    assert cut_to_crop(mask.pixels(), mask, AlignedFace.of(landmarks), "face", 1.0, 0.0).shape == (144, 144)
