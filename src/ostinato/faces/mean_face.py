"""The tables that alignment rests on: the mean face, the head model behind the pose, and the way from 98 points to 68.

They are those of the format that extracted faces come in (positions in the unit square that spans the outer brow ends
to just below the lower lip), and must be the same to the last digit for crops to agree with those of other programs.
Point numbers are of the usual 68-point order: 0-16 jaw from image left to right, 17-21 and 22-26 brows, 27-30 nose
ridge, 31-35 nose base, 36-41 and 42-47 eyes, 48-59 outer lips, 60-67 inner lips.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def _table(values: object) -> NDArray[np.float64]:
    array = np.array(values, np.float64)
    array.flags.writeable = False
    return array


def _numbers(values: object) -> NDArray[np.intp]:
    array = np.array(values, np.intp)
    array.flags.writeable = False
    return array


FIRST_ALIGNED_POINT = 17
"""Alignment uses points 17 to 67; the jaw moves too much with pose and speech."""

# fmt: off
MEAN_FACE = _table((
    (0.010086, 0.106454), (0.085135, 0.038915), (0.191003, 0.018748), (0.300643, 0.034489),
    (0.403270, 0.077391), (0.596729, 0.077391), (0.699356, 0.034489), (0.808997, 0.018748),
    (0.914864, 0.038915), (0.989913, 0.106454), (0.500000, 0.203352), (0.500000, 0.307009),
    (0.500000, 0.409805), (0.500000, 0.515625), (0.376753, 0.587326), (0.435909, 0.609345),
    (0.500000, 0.628106), (0.564090, 0.609345), (0.623246, 0.587326), (0.131610, 0.216423),
    (0.196995, 0.178758), (0.275698, 0.179852), (0.344479, 0.231733), (0.270791, 0.245099),
    (0.192616, 0.244077), (0.655520, 0.231733), (0.724301, 0.179852), (0.803005, 0.178758),
    (0.868389, 0.216423), (0.807383, 0.244077), (0.729208, 0.245099), (0.264022, 0.780233),
    (0.350858, 0.745405), (0.438731, 0.727388), (0.500000, 0.742578), (0.561268, 0.727388),
    (0.649141, 0.745405), (0.735977, 0.780233), (0.652032, 0.864805), (0.566594, 0.902192),
    (0.500000, 0.909281), (0.433405, 0.902192), (0.347967, 0.864805), (0.300252, 0.784792),
    (0.437969, 0.778746), (0.500000, 0.785343), (0.562030, 0.778746), (0.699747, 0.784792),
    (0.563237, 0.824182), (0.500000, 0.831803), (0.436763, 0.824182),
))
"""(51, 2): points 17 to 67 of the mean face, x and y in the unit square."""

UNIT_SQUARE = _table(((0, 0), (1, 0), (1, 1), (0, 1)))
"""(4, 2): where the four points of a box go, clockwise from the top left."""

HEAD_MODEL = _table((
    (4.056931, -11.432347, 1.636229), (1.833492, -12.542305, 4.061275), (0.000000, -12.901019, 4.070434),
    (-1.833492, -12.542305, 4.061275), (-4.056931, -11.432347, 1.636229), (6.825897, 1.275284, 4.402142),
    (1.330353, 1.636816, 6.903745), (-1.330353, 1.636816, 6.903745), (-6.825897, 1.275284, 4.402142),
    (1.930245, -5.060977, 5.914376), (0.746313, -5.136947, 6.263227), (0.000000, -5.485328, 6.763430),
    (-0.746313, -5.136947, 6.263227), (-1.930245, -5.060977, 5.914376), (5.311432, 0.000000, 3.987654),
    (1.789930, -0.091703, 4.413414), (-1.789930, -0.091703, 4.413414), (-5.311432, 0.000000, 3.987654),
    (2.774015, -7.566103, 5.048531), (0.509714, -7.056507, 6.566167), (0.000000, -7.131772, 6.704956),
    (-0.509714, -7.056507, 6.566167), (-2.774015, -7.566103, 5.048531), (-0.589441, -8.443925, 6.109526),
    (0.000000, -8.601736, 6.097667), (0.589441, -8.443925, 6.109526),
))
"""(26, 3): the head in arbitrary units; x to the image's left, y up, z towards the camera."""

HEAD_MODEL_POINTS = _numbers((
    6, 7, 8, 9, 10, 17, 21, 22, 26, 31, 32, 33, 34, 35, 36, 39, 42,
    45, 48, 50, 51, 52, 54, 56, 57, 58,
))
"""(26,): the number, of 68, of each point of the head model."""

POINTS_98_TO_68 = _numbers((
    0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32,
    33, 34, 35, 36, 37, 42, 43, 44, 45, 46, 51, 52, 53, 54, 55, 56, 57,
    58, 59, 60, 61, 63, 64, 65, 67, 68, 69, 71, 72, 73, 75, 76, 77, 78,
    79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95,
))
"""(68,): for each of 68 points its number in the 98-point order."""
# fmt: on
