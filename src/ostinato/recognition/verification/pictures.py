"""The pictures of pairs: where their bytes are, and how they become what a network sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.data.jpeg import ImageError
from ostinato.data.pictures import decode_rgb
from ostinato.errors import BadInputError
from ostinato.faces.file_names import shown_name
from ostinato.recognition.data.fitting import fit_to_square
from ostinato.recognition.data.image_folder import read_picture_file

IMAGE_SIZE = 112
"""Pixels a side of what a network sees."""


class Picture(Protocol):
    """An encoded picture with a name for people."""

    @property
    def name(self) -> str:
        """On one line and safe to print."""
        ...

    def read(self) -> bytes:
        """Its encoded bytes.

        :raises BadInputError: they cannot be read.
        """
        ...


@dataclass(frozen=True)
class PictureFile:
    """A picture in a file of its own."""

    path: Path

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

    def read(self) -> bytes:
        """See :meth:`Picture.read`."""
        return self.data


def prepare_picture(picture: Picture, size: int = IMAGE_SIZE) -> NDArray[np.uint8]:
    """Decode a picture, bring its shorter side to ``size`` (bicubic) and cut the middle out of the longer one.

    :returns: (size, size, 3) uint8, RGB.
    :raises BadInputError: it cannot be read or decoded, or is far from square; names it.
    """
    data = picture.read()
    try:
        return fit_to_square(decode_rgb(data), size)
    except ImageError as error:
        raise BadInputError(
            f"{picture.name} cannot be used: {error}.", picture=picture.name, reason=str(error)
        ) from None


def to_input(pictures: Sequence[NDArray[np.uint8]]) -> Tensor:
    """Prepared pictures as a network takes them: (B, 3, size, size), float32, RGB, -1 to 1."""
    stacked = torch.from_numpy(np.ascontiguousarray(np.stack(pictures).transpose(0, 3, 1, 2)))
    return stacked.float().sub_(127.5).div_(127.5)
