from __future__ import annotations

import colorsys

import numpy as np
import pytest
from record_sets import picture

from ostinato.errors import ArgumentValueError
from ostinato.recognition.data.augmentation import (
    AUGMENTATIONS,
    Augmentation,
    PictureChanges,
    augmentation_by_name,
    turn_colours,
)

_IMAGE = picture(3, 112)
_OFF = Augmentation(0, 0, 0, 0)


def _apply(augmentation: Augmentation | None, draw: list[float], image: np.ndarray = _IMAGE) -> np.ndarray:
    return PictureChanges(0, mirror=True, augmentation=augmentation).apply(image, np.array(draw))


def _draw(*, mirror: float = 0.9, side: float = 0.5, hue: float = 0.0, saturation: float = 0.0) -> list[float]:
    return [mirror, 0.01, side, 0.01, 0.01, hue, saturation, 0.01]


def test_the_published_chances() -> None:
    assert augmentation_by_name("dali_aug") == Augmentation(0.1, 0.2, 0.2, 0.1)
    assert augmentation_by_name("none") is None
    with pytest.raises(ArgumentValueError, match=r"'dali'.*none, dali_aug"):
        augmentation_by_name("dali")


def test_without_augmentation_a_picture_is_mirrored_or_left() -> None:
    assert np.array_equal(_apply(None, _draw(mirror=0.49)), _IMAGE[:, ::-1])
    assert np.array_equal(_apply(None, _draw(mirror=0.51)), _IMAGE)
    assert np.array_equal(_apply(_OFF, _draw()), _IMAGE)


def test_chances_decide_how_often() -> None:
    changes = PictureChanges(5, mirror=False, augmentation=AUGMENTATIONS["dali_aug"])
    draws = changes.draws(np.arange(20_000))
    for lane, chance in ((1, 0.1), (3, 0.2), (4, 0.2), (7, 0.1)):
        assert abs((draws[:, lane] < chance).mean() - chance) < 0.01
    assert abs(np.corrcoef(draws.T) - np.eye(8)).max() < 0.05


@pytest.mark.parametrize(("draw", "side"), [(0.0, 56), (0.5, 72), (0.9999, 88)])
def test_shrinking_goes_to_56_to_88_pixels(monkeypatch: pytest.MonkeyPatch, draw: float, side: int) -> None:
    import cv2

    sizes = []
    resize = cv2.resize
    monkeypatch.setattr(cv2, "resize", lambda image, size, **kw: sizes.append(size) or resize(image, size, **kw))
    changed = _apply(Augmentation(1, 0, 0, 0), _draw(side=draw))
    assert sizes == [(side, side), (112, 112)]
    assert changed.shape == _IMAGE.shape
    assert not np.array_equal(changed, _IMAGE)


def test_the_blur_reaches_one_pixel() -> None:
    point = np.zeros((112, 112, 3), np.uint8)
    point[50, 60] = 255
    blurred = _apply(Augmentation(0, 1, 0, 0), _draw(), point)
    assert sorted({tuple(place) for place in np.argwhere(blurred[:, :, 0]).tolist()}) == [
        (row, column) for row in (49, 50, 51) for column in (59, 60, 61)
    ]


def test_grey_keeps_the_brightness_and_drops_the_colour() -> None:
    grey = _apply(Augmentation(0, 0, 0, 1), _draw())
    assert np.abs(grey.max(axis=2).astype(int) - grey.min(axis=2)).max() <= 1
    brightness = _IMAGE @ np.array([0.299, 0.587, 0.114])
    assert np.abs(grey[:, :, 0] - brightness).max() <= 2


def test_hue_turns_and_saturation_grows_and_brightness_stays() -> None:
    soft = (_IMAGE // 3 + 80).astype(np.uint8)
    changed = _apply(Augmentation(0, 0, 1, 0), _draw(hue=1.0, saturation=1.0), soft)
    weights = np.array([0.299, 0.587, 0.114])
    assert np.abs(changed @ weights - soft @ weights).max() <= 2
    assert np.array_equal(turn_colours(soft, 0.0, 1.0), soft)
    before = colorsys.rgb_to_hsv(200, 100, 100)[0]
    after = colorsys.rgb_to_hsv(*map(float, turn_colours(np.array([[[200, 100, 100]]], np.uint8), 20.0, 1.0)[0, 0]))[0]
    assert 5 / 360 < abs((after - before + 0.5) % 1 - 0.5) < 40 / 360
    strong = turn_colours(soft, 0.0, 1.2)
    assert (strong.max(2).astype(int) - strong.min(2)).mean() > 1.15 * (soft.max(2).astype(int) - soft.min(2)).mean()


def test_the_picture_itself_stays_as_it_is() -> None:
    image = _IMAGE.copy()
    _apply(Augmentation(1, 1, 1, 1), _draw(mirror=0.1), image)
    assert np.array_equal(image, _IMAGE)


def test_a_chance_outside_of_0_to_1_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match=r"blur is 1\.5"):
        Augmentation(blur=1.5)
