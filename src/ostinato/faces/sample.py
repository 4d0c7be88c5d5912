"""One face file made ready for training: the crop, its masks and its landmarks."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.errors import ArgumentValueError
from ostinato.faces.metadata import CENTERINGS, Centering

LANDMARK_MASKS = ("components", "extended", "eye", "mouth")
"""Masks drawn from the landmarks; every other name is that of a mask stored in the file."""


@dataclass(frozen=True)
class CropSettings:
    """Everything that shapes a prepared face, and so everything that a cache of them must be keyed by."""

    size: int
    """Pixels a side of the crop and its masks."""
    centering: Centering = "face"
    coverage: float = 1.0
    """A **fraction** above 0 and at most 1 (the option ``face.coverage`` is in percent: divide by 100)."""
    vertical_offset: float = 0.0
    """In units of the aligned face, -1 to 1 (the option ``face.vertical_offset`` is in percent: divide by 100)."""
    masks: tuple[str, ...] = ()
    """The masks wanted, in this order: ``components``, ``extended``, ``eye``, ``mouth`` or a stored mask's name."""
    mask_dilation: float = 0.0
    """Percent of the mask's side, as the option. Not for ``eye`` and ``mouth``, whose dilation is fixed."""
    mask_blur_kernel: int = 3
    """Pixels for a mask of 128, as the option; scaled to the mask's size. Not for ``eye`` and ``mouth``."""
    mask_threshold: float = 4.0
    """Percent, as the option; for stored masks only."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ArgumentValueError(f"size is {self.size}; a crop has at least 1 pixel.")
        if self.centering not in CENTERINGS:
            raise ArgumentValueError(f"centering is {self.centering!r}; it is one of {', '.join(CENTERINGS)}.")
        if not 0 < self.coverage <= 1:
            raise ArgumentValueError(
                f"coverage is {self.coverage}; it is a fraction above 0 and at most 1.",
                advice="Divide the option, which is in percent, by 100.",
            )
        if not -1 <= self.vertical_offset <= 1:
            raise ArgumentValueError(
                f"vertical_offset is {self.vertical_offset}; it is between -1 and 1.",
                advice="Divide the option, which is in percent, by 100.",
            )


@dataclass(frozen=True, eq=False)
class PreparedFace:
    """A face cut, masked and measured at ``settings.size`` (S)."""

    image: NDArray[np.uint8]
    """(S, S, 3), RGB."""
    masks: NDArray[np.uint8]
    """(S, S, m), one channel per name in ``settings.masks`` and in that order; 0 outside, 255 inside."""
    landmarks: NDArray[np.float32] | None
    """(68, 2), x and y in pixels of the crop; None for plain pictures and for faces with 4 points."""


def prepare_face(path: str | os.PathLike[str], settings: CropSettings) -> PreparedFace:
    """Read one face file and cut, mask and measure it.

    :raises FaceFileError: the file cannot be read, or lacks a mask or the landmarks that ``settings.masks`` needs.
    """
    raise NotImplementedError(path, settings)
