"""Masks that came with the face file, brought to a crop."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ostinato.faces.alignment import PADDING_RATIO, AlignedFace
from ostinato.faces.cropping import crop_width, cut_square, offset_between, resize_square
from ostinato.faces.mask_shaping import blur_mask, dilate_mask, scaled_kernel, threshold_mask
from ostinato.faces.metadata import Centering, StoredMask


def stored_mask(
    stored: StoredMask,
    aligned: AlignedFace,
    size: int,
    centering: Centering = "face",
    coverage: float = 1.0,
    vertical_offset: float = 0.0,
    *,
    dilation: float = 0.0,
    blur_kernel: float = 0.0,
    threshold: float = 0.0,
) -> NDArray[np.uint8]:
    """A stored mask as training uses it, (size, size) uint8, over the same crop as the picture.

    Dilation, threshold and blur happen at the size the mask is stored at. Where the crop shows more than the mask
    covers, the mask is 0.

    :param dilation: percent of the stored side; negative shrinks.
    :param blur_kernel: pixels for a mask of 128, scaled to the stored size.
    :param threshold: percent, 0 to 50.
    :raises MetadataError: the mask cannot be unpacked.
    """
    mask = threshold_mask(dilate_mask(stored.pixels(), dilation), threshold)
    mask = blur_mask(mask, scaled_kernel(blur_kernel, stored.stored_size))
    return resize_square(cut_to_crop(mask, stored, aligned, centering, coverage, vertical_offset), size)


def cut_to_crop(
    mask: NDArray[np.uint8],
    stored: StoredMask,
    aligned: AlignedFace,
    centering: Centering,
    coverage: float,
    vertical_offset: float,
) -> NDArray[np.uint8]:
    """The part of a mask at stored size that a crop covers, still at the mask's scale."""
    source, side = stored.stored_centering, stored.stored_size
    if source == centering and coverage == 1 and vertical_offset == 0:
        return mask
    width = crop_width(side, source, centering, coverage)
    moved = offset_between(aligned, source, centering, vertical_offset)
    centre = np.rint(moved * side * (1 - PADDING_RATIO[source]) + side / 2).astype(int)
    return cut_square(mask, int(centre[0]) - width // 2, int(centre[1]) - width // 2, width)
