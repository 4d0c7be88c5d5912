from __future__ import annotations

import cv2
import numpy as np
import pytest

from ostinato.faces.mask_shaping import blur_mask, dilate_mask, odd_kernel, scaled_kernel, threshold_mask


@pytest.fixture
def mask() -> np.ndarray:
    result = np.zeros((100, 100), np.uint8)
    result[30:70, 40:60] = 255
    return result


def test_dilation_grows_and_a_negative_one_shrinks(mask: np.ndarray) -> None:
    before = mask.copy()
    grown, shrunk = dilate_mask(mask, 5), dilate_mask(mask, -5)
    assert (grown[50] > 0).sum() == 24  # an ellipse of 5 reaches 2 pixels to each side
    assert (shrunk[50] > 0).sum() == 16
    assert np.array_equal(mask, before)


@pytest.mark.parametrize("percent", [0, 0.5, -0.5, 1.4, -1.4])
def test_a_kernel_below_two_pixels_changes_nothing(mask: np.ndarray, percent: float) -> None:
    assert np.array_equal(dilate_mask(mask, percent), mask)


def test_shrinking_does_not_eat_from_the_border() -> None:
    assert dilate_mask(np.full((50, 50), 255, np.uint8), -8).min() == 255


def test_threshold_clears_the_faint_and_fills_the_nearly_full() -> None:
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    result = threshold_mask(values, 10).ravel()  # 25.5
    assert result[25] == 0
    assert result[26] == 26
    assert result[229] == 229
    assert result[230] == 255
    assert np.array_equal(threshold_mask(values, 0), values)


def test_a_threshold_of_half_leaves_two_values() -> None:
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert set(threshold_mask(values, 50).ravel().tolist()) == {0, 255}


@pytest.mark.parametrize(
    ("setting", "size", "kernel"),
    [(3, 128, 3), (3, 64, 3), (3, 256, 7), (3, 192, 5), (3, 32, 0), (0, 512, 0), (9, 128, 9), (9, 64, 5), (1, 128, 0)],
)
def test_the_blur_setting_is_meant_for_128_pixels(setting: float, size: int, kernel: int) -> None:
    assert scaled_kernel(setting, size) == kernel


def test_kernels_become_odd() -> None:
    assert [odd_kernel(side) for side in range(7)] == [0, 0, 3, 3, 5, 5, 7]


def test_blur_is_gaussian_by_the_kernels_side(mask: np.ndarray) -> None:
    assert np.array_equal(blur_mask(mask, 4), cv2.GaussianBlur(mask, (5, 5), 0))
    assert blur_mask(mask, 1) is mask


def test_further_passes_shrink_the_kernel(mask: np.ndarray) -> None:
    boxes = cv2.blur(cv2.blur(mask, (7, 7)), (5, 5))  # 7 / 2 = 3.5, rounded to 4, made odd
    assert np.array_equal(blur_mask(mask, 7, "box", passes=2), boxes)
    gaussians = cv2.GaussianBlur(cv2.GaussianBlur(mask, (9, 9), 0), (7, 7), 0)
    assert np.array_equal(blur_mask(mask, 9, passes=2), gaussians)
