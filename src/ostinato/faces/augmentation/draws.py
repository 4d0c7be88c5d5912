"""The random numbers of one batch's augmentation, apart from their use.

Drawing is separated from applying, so that the appliers are plain functions with given numbers, and the draws are a
function of (seed, side, position) alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ostinato.config.swap import AugmentationOptions
from ostinato.data.counter_random import CounterRandom, to_normal

# The lanes of a sample: which of its numbers is used for what. New uses go to the end, so that old runs keep theirs.
_LAB = slice(0, 3)
_CLAHE_CHANCE = 3
_CLAHE_GRID = 4
_ROTATION = 5
_ZOOM = 6
_SHIFT = slice(7, 9)
_FLIP = 9
_NEIGHBOUR_SIDE = 10
_NEIGHBOUR = 11
_WARP = slice(12, 62)
_PLAIN_LANES = 62
_LANDMARKS = slice(62, 62 + 136)
_ALL_LANES = 62 + 136

LATTICE_POINTS = 5
"""Control points of the random warp, along each axis."""


@dataclass(frozen=True)
class AugmentationDraws:
    """What was drawn for n samples, in the units of use.

    Fields of a step that is switched off hold the values that do nothing.
    """

    lab: npt.NDArray[np.float64]
    """(n, 3) jitter of lightness, a and b: -1 pulls to 0, 0 does nothing, 1 pulls to 255."""
    clahe_tiles: npt.NDArray[np.int64]
    """(n,) tiles per side for the contrast equalisation; 0 where it is not applied."""
    rotation: npt.NDArray[np.float64]
    """(n,) degrees, counter-clockwise."""
    zoom: npt.NDArray[np.float64]
    """(n,) factors around 1."""
    shift: npt.NDArray[np.float64]
    """(n, 2) x and y in pixels."""
    flip: npt.NDArray[np.bool_]
    """(n,) mirrored left to right."""
    warp: npt.NDArray[np.float64] | None
    """(n, 2, 5, 5) offsets in pixels of the control points' x and y; None when there is no random warp."""
    neighbour: npt.NDArray[np.float64]
    """(n, 2) uniform numbers that pick the other side, and the face among its nearest ones, for warp to landmarks."""
    landmark_noise: npt.NDArray[np.float64] | None
    """(n, 68, 2) offsets in pixels of the neighbour's landmarks; None when there is no warp to landmarks."""


@dataclass(frozen=True)
class AugmentationSwitches:
    """Which steps the user left on. The affine transform is always applied."""

    color: bool = True
    flip: bool = True
    warp: bool = True
    warp_to_landmarks: bool = False
    """Bend to another face's landmarks in place of the random warp. Without ``warp`` neither is done."""


def draw_augmentation(
    random: CounterRandom,
    positions: npt.ArrayLike,
    sides: npt.ArrayLike,
    *,
    options: AugmentationOptions,
    switches: AugmentationSwitches,
    size: int,
) -> AugmentationDraws:
    """Draw for n samples at once.

    A sample's numbers do not depend on the other samples of the call. Ranges follow ``options`` at the time of the
    call; a changed option changes a draw's scale, and no other draw.

    :param positions: (n,) global positions in the orders of their sides.
    :param sides: (n,) numbers of the sides.
    :param size: side of the processed image in pixels.
    """
    bend_to_landmarks = switches.warp and switches.warp_to_landmarks
    uniform = random.uniform(positions, _ALL_LANES if bend_to_landmarks else _PLAIN_LANES, sides)
    count = len(uniform)
    centred = 2.0 * uniform - 1.0

    if switches.color:
        reach = np.array([options.color_lightness, options.color_ab, options.color_ab]) / 100.0
        lab = centred[:, _LAB] * reach
        chosen = uniform[:, _CLAHE_CHANCE] < options.color_clahe_chance / 100.0
        steps = np.floor(uniform[:, _CLAHE_GRID] * (options.color_clahe_max_size + 1)).astype(np.int64)
        tiles = np.where(chosen, clahe_tiles(steps, size), 0)
    else:
        lab = np.zeros((count, 3))
        tiles = np.zeros(count, dtype=np.int64)

    warp = landmark_noise = None
    if bend_to_landmarks:
        landmark_noise = to_normal(uniform[:, _LANDMARKS]).reshape(count, 68, 2) * (2.0 * size / 256.0)
    elif switches.warp:
        warp = to_normal(uniform[:, _WARP]).reshape(count, 2, LATTICE_POINTS, LATTICE_POINTS) * (5.0 * size / 256.0)

    return AugmentationDraws(
        lab=lab,
        clahe_tiles=tiles,
        rotation=centred[:, _ROTATION] * options.rotation_range,
        zoom=1.0 + centred[:, _ZOOM] * (options.zoom_amount / 100.0),
        shift=centred[:, _SHIFT] * (options.shift_range / 100.0 * size),
        flip=(uniform[:, _FLIP] <= options.flip_chance / 100.0) & switches.flip,
        warp=warp,
        neighbour=uniform[:, _NEIGHBOUR_SIDE : _NEIGHBOUR + 1],
        landmark_noise=landmark_noise,
    )


def clahe_tiles(steps: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Tiles per side for a drawn number of steps (0 to ``color_clahe_max_size``): finer for larger images."""
    base = max(2, size // 128)
    return steps * (base // 2) + base
