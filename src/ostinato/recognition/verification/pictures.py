"""The pictures of pairs: where their bytes are, and how they become what a network sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.data.file_names import shown_name
from ostinato.data.jpeg import ImageError
from ostinato.data.pictures import decode_rgb
from ostinato.errors import BadInputError
from ostinato.faces.alignment import umeyama
from ostinato.recognition.data.fitting import fit_to_square
from ostinato.recognition.data.image_folder import read_picture_file

IMAGE_SIZE = 112
"""Pixels a side of what a network sees."""


Landmarks = tuple[tuple[float, float], ...]
"""Five points (x, y): both eyes, the one that is left in the picture first, tip of the nose, corners of the mouth."""

ALIGNED = np.array([(38.2946, 51.6963), (73.5318, 51.5014), (56.0252, 71.7366), (41.5493, 92.3655), (70.7299, 92.2041)])
"""Where the five points lie in an aligned picture of 112 pixels a side."""


class Picture(Protocol):
    """An encoded picture with a name for people."""

    @property
    def name(self) -> str:
        """On one line and safe to print."""
        ...

    @property
    def landmarks(self) -> Landmarks | None:
        """Where eyes, nose and corners of the mouth are, in pixels; None for a picture that is aligned already."""
        ...

    def read(self) -> bytes:
        """Its encoded bytes.

        :raises BadInputError: they cannot be read.
        """
        ...


@dataclass(frozen=True)
class PictureFile:
    """A picture in a file of its own.

    :param landmarks: see :attr:`Picture.landmarks`.
    """

    path: Path
    landmarks: Landmarks | None = None

    @property
    def name(self) -> str:
        """The path."""
        return shown_name(self.path)

    def read(self) -> bytes:
        """See :meth:`Picture.read`."""
        return read_picture_file(self.path)


@dataclass(frozen=True)
class PictureBytes:
    """A picture in memory.

    :param name: on one line and safe to print.
    """

    name: str
    data: bytes
    landmarks: Landmarks | None = None

    def read(self) -> bytes:
        """See :meth:`Picture.read`."""
        return self.data


def prepare_picture(picture: Picture, size: int = IMAGE_SIZE) -> NDArray[np.uint8]:
    """Decode a picture, bring its shorter side to ``size`` (bicubic) and cut the middle out of the longer one.

    Where it has landmarks, it is instead turned, scaled and moved so that they lie where an aligned face has them.

    :returns: (size, size, 3) uint8, RGB.
    :raises BadInputError: it cannot be read or decoded, or is far from square; names it.
    """
    data = picture.read()
    try:
        pixels = decode_rgb(data)
        return fit_to_square(pixels, size) if picture.landmarks is None else aligned(pixels, picture.landmarks, size)
    except ImageError as error:
        raise BadInputError(
            f"{picture.name} cannot be used: {error}.", picture=picture.name, reason=str(error)
        ) from None


def aligned(pixels: NDArray[np.uint8], landmarks: Landmarks, size: int = IMAGE_SIZE) -> NDArray[np.uint8]:
    """A face brought to where aligned faces lie; black where the picture ends.

    :param pixels: (H, W, 3) uint8.
    :returns: (size, size, 3) uint8.
    :raises ImageError: the points lie on one spot.
    """
    points = np.asarray(landmarks, np.float64)
    if not np.isfinite(points).all() or np.ptp(points, axis=0).max() == 0:
        raise ImageError("its landmarks lie on one spot or are not finite")
    (matrix,) = umeyama(points[None], ALIGNED * (size / IMAGE_SIZE))
    return np.asarray(cv2.warpAffine(pixels, matrix, (size, size), flags=cv2.INTER_LINEAR, borderValue=0), np.uint8)


def to_input(pictures: Sequence[NDArray[np.uint8]]) -> Tensor:
    """Prepared pictures as a network takes them: (B, 3, size, size), float32, RGB, -1 to 1."""
    stacked = torch.from_numpy(np.ascontiguousarray(np.stack(pictures).transpose(0, 3, 1, 2)))
    return stacked.float().sub_(127.5).div_(127.5)
