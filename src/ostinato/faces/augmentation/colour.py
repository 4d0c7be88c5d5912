"""Colour: a jitter in L*a*b* and a local contrast equalisation of the lightness.

The work is done in 8 bit: jitter is one table per channel, rounded (not truncated) to the nearest level, and
the conversions are OpenCV's. Against a calculation in floating point that costs a level or two.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

_LEVELS = np.arange(256.0)
_CLIP_LIMIT = 2.0


def jitter_curve(levels: npt.NDArray[np.float64], amount: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Levels after a jitter, not yet rounded.

    A positive amount moves every level that share of its way to 255, a negative one to 0. For a and b this is not
    symmetric about the neutral 128; it is kept so that models see the range of colours they would see elsewhere.

    :param levels: 0 to 255.
    :param amount: -1 to 1; broadcast against ``levels``.
    """
    # Both cases at once: (255 - x) a + x for a >= 0, and x (1 + a) for a < 0.
    return levels * (1.0 - np.abs(amount)) + 255.0 * np.maximum(amount, 0.0)


def jitter_tables(lab: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """Look-up tables for n images.

    :param lab: (n, 3) amounts for L, a and b.
    :return: (n, 1, 256, 3), in the form ``cv2.LUT`` takes.
    """
    curves = jitter_curve(_LEVELS[None, :, None], lab[:, None, :])
    return np.rint(curves).astype(np.uint8)[:, None]


def equalise(lightness: npt.NDArray[Any], tiles: int) -> npt.NDArray[Any]:
    """Contrast-limited adaptive histogram equalisation, clip limit 2.

    :param lightness: (size, size) uint8.
    :param tiles: tiles per side; reduced to the image's side where there are more.
    """
    tiles = min(tiles, *lightness.shape)
    return cv2.createCLAHE(_CLIP_LIMIT, (tiles, tiles)).apply(lightness)


class ColourAugmenter:
    """Applies the colour step to one image after another.

    Holds scratch images (7 bytes a pixel), so one augmenter serves one thread.

    :param size: side of the images.
    """

    def __init__(self, size: int) -> None:
        self._lab = np.empty((size, size, 3), dtype=np.uint8)
        self._jittered = np.empty((size, size, 3), dtype=np.uint8)
        self._lightness = np.empty((size, size), dtype=np.uint8)

    def __call__(
        self, image: npt.NDArray[Any], table: npt.NDArray[np.uint8], tiles: int, out: npt.NDArray[np.uint8]
    ) -> None:
        """Write the recoloured ``image`` to ``out``.

        :param image: (size, size, 3) uint8 RGB.
        :param table: (1, 256, 3), from :func:`jitter_tables`.
        :param tiles: tiles per side for :func:`equalise`, 0 for none.
        :param out: (size, size, 3) uint8, contiguous; not ``image`` itself.
        """
        cv2.cvtColor(image, cv2.COLOR_RGB2Lab, dst=self._lab)
        cv2.LUT(self._lab, table, dst=self._jittered)
        if tiles:
            cv2.extractChannel(self._jittered, 0, dst=self._lightness)
            cv2.insertChannel(equalise(self._lightness, tiles), self._jittered, 0)
        cv2.cvtColor(self._jittered, cv2.COLOR_Lab2RGB, dst=out)
