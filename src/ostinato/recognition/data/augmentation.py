"""What is done to a training picture on its way into a batch, drawn by the sample's position in the run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt

from ostinato.data.counter_random import CounterRandom
from ostinato.errors import ArgumentValueError

_LANES = 8
_BLUR_SIGMA = 0.8  # what a window of three pixels stands for, by the formula that image libraries share

# Colours as brightness and two axes of colour (YIQ), in which hue is an angle and saturation a length.
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
_FROM_YIQ = np.linalg.inv(_TO_YIQ)


@dataclass(frozen=True)
class Augmentation:
    """How pictures are varied besides mirroring. The defaults are those of the published large-set pipeline.

    The steps come in the order of the fields, each with its own chance, 0 to 1.
    """

    shrink: float = 0.1
    """Chance of being shrunk to a square of 56 to 88 of 112 pixels (the same share at other sizes) and enlarged
    again."""
    blur: float = 0.2
    """Chance of a Gaussian blur over a window of three pixels."""
    hue_saturation: float = 0.2
    """Chance of a turn of the hue by 0 to 20 degrees together with a saturation of 1 to 1.2 times."""
    grey: float = 0.1
    """Chance of becoming grey."""

    def __post_init__(self) -> None:
        for field in fields(self):
            chance = getattr(self, field.name)
            if not 0 <= chance <= 1:
                raise ArgumentValueError(f"{field.name} is {chance}.", advice="A chance lies between 0 and 1.")


AUGMENTATIONS: dict[str, Augmentation | None] = {"none": None, "dali_aug": Augmentation()}
"""Augmentations by name; ``dali_aug`` is what the pipeline for very large sets is called elsewhere."""

AugmentationName = Literal["none", "dali_aug"]


def augmentation_by_name(name: str) -> Augmentation | None:
    """One of :data:`AUGMENTATIONS`.

    :raises ArgumentValueError: there is none of this name.
    """
    if name not in AUGMENTATIONS:
        raise ArgumentValueError(f"augmentation is {name!r}.", advice=f"Use one of {', '.join(AUGMENTATIONS)}.")
    return AUGMENTATIONS[name]


class PictureChanges:
    """Changes pictures by what the seed and their position in the run say, and by nothing else.

    :param seed: the run's seed.
    :param mirror: mirror every second picture, by chance.
    :param augmentation: further changes; None for none. Switching them on or off leaves the mirroring as it is.
    """

    def __init__(self, seed: int, *, mirror: bool, augmentation: Augmentation | None) -> None:
        self._random = CounterRandom(seed, "recognition augmentation")
        self._mirror = mirror
        self._augmentation = augmentation

    def draws(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The random numbers of samples.

        :param positions: (n,) positions in the run.
        :return: (n, 8) numbers between 0 and 1, a row for :meth:`apply` each.
        """
        return self._random.uniform(positions, _LANES)

    def apply(self, image: npt.NDArray[np.uint8], draw: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
        """Change a picture.

        :param image: (size, size, 3) uint8 RGB; stays as it is.
        :param draw: (8,) from :meth:`draws`.
        :return: (size, size, 3) uint8.
        """
        mirror, shrink, side, blur, colour, hue, saturation, grey = map(float, draw)
        chances = self._augmentation
        if chances is not None:
            if shrink < chances.shrink:
                image = _shrink(image, side)
            if blur < chances.blur:
                image = np.asarray(cv2.GaussianBlur(image, (3, 3), _BLUR_SIGMA), np.uint8)
            if colour < chances.hue_saturation:
                image = turn_colours(image, 20.0 * hue, 1.0 + 0.2 * saturation)
            if grey < chances.grey:
                image = turn_colours(image, 0.0, 0.0)
        # Copying a view that runs backwards takes a dozen times as long.
        return np.asarray(cv2.flip(image, 1), np.uint8) if self._mirror and mirror < 0.5 else image


def turn_colours(image: npt.NDArray[np.uint8], hue: float, saturation: float) -> npt.NDArray[np.uint8]:
    """Turn the hue and scale the saturation, leaving brightness (Y of YIQ) as it is.

    :param image: (H, W, 3) uint8 RGB.
    :param hue: angle in degrees.
    :param saturation: factor; 0 makes the picture grey.
    """
    angle = np.deg2rad(hue)
    turn = saturation * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    middle = np.eye(3)
    middle[1:, 1:] = turn
    return np.asarray(cv2.transform(image, _FROM_YIQ @ middle @ _TO_YIQ), np.uint8)


def _shrink(image: npt.NDArray[np.uint8], draw: float) -> npt.NDArray[np.uint8]:
    size = image.shape[0]
    low, high = size // 2, (size * 89) // 112
    side = low + int(draw * (high - low))
    small = cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.resize(small, (size, size), interpolation=cv2.INTER_LINEAR), np.uint8)
