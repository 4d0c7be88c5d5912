"""Turns prepared faces into the pictures of a batch: colour, transform, mirror, warp, sizes.

What applies to what: colour, transform and mirror to the input and the targets; transform and mirror to the masks; the
warp to the input alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from ostinato.faces.augmentation.colour import ColourAugmenter, jitter_tables
from ostinato.faces.augmentation.draws import AugmentationDraws
from ostinato.faces.augmentation.landmark_warp import landmark_map
from ostinato.faces.augmentation.transform import invert, transform_image, transform_matrices, transform_points
from ostinato.faces.augmentation.warp import enlarge_lattice, source_lattices, warp_image


@dataclass(frozen=True)
class BatchChanges:
    """The draws of n samples, turned into what the appliers take. Computed for the whole batch at once."""

    size: int
    """Side of the prepared faces in pixels."""
    tables: npt.NDArray[np.uint8] | None
    """(n, 1, 256, 3) colour tables; None without colour augmentation."""
    clahe_tiles: npt.NDArray[np.int64]
    """(n,) tiles per side, 0 for none."""
    inverse: npt.NDArray[np.float64]
    """(n, 2, 3) from transformed to source pixels, the mirror included."""
    lattices: npt.NDArray[np.float32] | None
    """(n, 5, 5, 2) source positions of the random warp's control points."""
    shapes: npt.NDArray[np.float64] | None
    """(n, 2, 68, 2) own and wanted landmarks after the transform, for warp to landmarks."""

    def source_positions(self, index: int) -> npt.NDArray[Any] | None:
        """(size, size, 2): where each pixel of sample ``index``'s warped input lies in its prepared face; None: no
        warp."""
        if self.shapes is not None:
            own, wanted = self.shapes[index]
            return cv2.transform(landmark_map(own, wanted, self.size), self.inverse[index].astype(np.float32))
        if self.lattices is not None:
            return enlarge_lattice(self.lattices[index], self.size)
        return None


def batch_changes(
    draws: AugmentationDraws, size: int, *, color: bool, landmarks: npt.NDArray[np.float32] | None = None
) -> BatchChanges:
    """Prepare the draws for use.

    :param size: side of the prepared faces in pixels.
    :param color: whether the colour step is done at all.
    :param landmarks: (n, 2, 68, 2) each sample's own landmarks and its neighbour's, in pixels of the prepared face;
        needed when the draws hold noise for landmarks.
    """
    matrices = transform_matrices(draws.rotation, draws.zoom, draws.shift, draws.flip, size)
    inverse = invert(matrices)
    shapes = None
    if draws.landmark_noise is not None and landmarks is not None:
        count = len(landmarks)
        shapes = transform_points(landmarks.reshape(count, 136, 2), matrices).reshape(count, 2, 68, 2)
        shapes[:, 1] += draws.landmark_noise
    return BatchChanges(
        size=size,
        tables=jitter_tables(draws.lab) if color else None,
        clahe_tiles=draws.clahe_tiles,
        inverse=inverse,
        lattices=source_lattices(draws.warp, inverse, size) if draws.warp is not None else None,
        shapes=shapes,
    )


class FaceAugmenter:
    """Applies prepared changes to one face after another.

    Holds scratch images (about 17 bytes a pixel), so one augmenter serves one thread.

    :param size: side of the prepared faces; at least the input size and every output size.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._colour = ColourAugmenter(size)
        self._coloured = np.empty((size, size, 3), dtype=np.uint8)
        self._moved = np.empty((size, size, 3), dtype=np.uint8)
        self._moved_mask = np.empty((size, size), dtype=np.uint8)
        self._warped = np.empty((size, size, 3), dtype=np.uint8)

    def __call__(
        self,
        image: npt.NDArray[Any],
        masks: npt.NDArray[Any],
        changes: BatchChanges,
        index: int,
        *,
        input_out: npt.NDArray[np.uint8],
        targets_out: Sequence[npt.NDArray[np.uint8]],
        masks_out: Sequence[Sequence[npt.NDArray[np.uint8]]],
    ) -> None:
        """Write sample ``index``'s input, targets and masks.

        :param image: (size, size, 3) uint8 RGB, left as it is.
        :param masks: (m, size, size) uint8, left as they are.
        :param input_out: (input size, input size, 3).
        :param targets_out: one (output size, output size, 3) per output.
        :param masks_out: per mask, one (output size, output size) per output.
        """
        if changes.tables is not None:
            self._colour(image, changes.tables[index], int(changes.clahe_tiles[index]), self._coloured)
            image = self._coloured
        inverse = changes.inverse[index]
        # Transformed once at full size, straight into the output of that size where there is one.
        sizes = [out.shape[0] for out in targets_out]
        full = sizes.index(self._size) if self._size in sizes else None
        moved = _move(image, inverse, targets_out, full, self._moved)
        for mask, outs in zip(masks, masks_out, strict=True):
            _move(mask, inverse, outs, full, self._moved_mask)
        positions = changes.source_positions(index)
        if positions is None:
            shrink(moved, input_out)
        elif input_out.shape[0] == self._size:
            warp_image(image, positions, input_out)
        else:
            warp_image(image, positions, self._warped)
            shrink(self._warped, input_out)


def _move(
    image: npt.NDArray[Any],
    inverse: npt.NDArray[np.float64],
    outs: Sequence[npt.NDArray[np.uint8]],
    full: int | None,
    scratch: npt.NDArray[np.uint8],
) -> npt.NDArray[np.uint8]:
    """Transform into output number ``full``, or into ``scratch``, and shrink that to the other outputs."""
    moved = scratch if full is None else outs[full]
    transform_image(image, inverse, moved)
    for number, out in enumerate(outs):
        if number != full:
            shrink(moved, out)
    return moved


def shrink(image: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> None:
    """Area-resize ``image`` into ``out``; a copy when the sizes are equal."""
    if image.shape == out.shape:
        np.copyto(out, image)
    else:
        cv2.resize(image, (out.shape[1], out.shape[0]), dst=out, interpolation=cv2.INTER_AREA)
