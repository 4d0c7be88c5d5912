from __future__ import annotations

import cv2
import numpy as np
import pytest
from record_sets import picture

from ostinato.data.jpeg import ImageError
from ostinato.recognition.data.fitting import fit_to_square


def test_a_picture_of_the_right_size_is_handed_through() -> None:
    image = picture(1, 112)
    assert fit_to_square(image, 112) is image


@pytest.mark.parametrize(
    ("height", "width", "resized", "top", "left"),
    [
        (112, 92, (112, 136), 12, 0),
        (92, 112, (136, 112), 0, 12),
        (250, 250, (112, 112), 0, 0),
        (61, 56, (112, 122), 5, 0),
    ],
)
def test_the_shorter_side_is_resized_bicubic_and_the_middle_kept(
    height: int, width: int, resized: tuple[int, int], top: int, left: int
) -> None:
    image = picture(2, 256)[:height, :width]
    expected = cv2.resize(image, resized, interpolation=cv2.INTER_CUBIC)[top : top + 112, left : left + 112]
    assert np.array_equal(fit_to_square(image, 112), expected)


def test_the_middle_of_a_longer_side_is_kept_without_resizing() -> None:
    image = picture(2, 256)[:112, :131]
    assert np.array_equal(fit_to_square(image, 112), image[:, 9:121])


def test_a_strip_is_refused_because_it_would_become_huge() -> None:
    with pytest.raises(ImageError, match="strip of 1000 x 2 pixels"):
        fit_to_square(np.zeros((2, 1000, 3), np.uint8), 112)
