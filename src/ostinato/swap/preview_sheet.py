"""The preview sheet: a row per face; per side its originals, its own rebuilds, and what the other sides make of them.

A pure function from arrays to a picture. With sides A and B the columns are ``A | A > A | A > B | B | B > B | B > A``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.errors import ArgumentValueError

Picture = NDArray[np.uint8]
"""(H, W, 3), RGB."""

_WHITE = 255
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_LEAST_SCALE = 0.3
"""Of the smallest letters that can be read: six pixels high."""


@dataclass(frozen=True, eq=False)
class SheetColumns:
    """One side's faces and what the model made of them. Sides may have different numbers of faces."""

    name: str
    """The side's name; shown in capitals."""
    patches: NDArray[np.uint8]
    """(n, F, F, 3), RGB: the faces at full coverage."""
    masks: NDArray[np.uint8] | None
    """(n, F, F), 255 inside; None where there is no mask: all of the face counts as inside."""
    predictions: Mapping[str, NDArray[Any]]
    """Side name to (n, out, out, 3 or 4), RGB and maybe a predicted mask, float, 0 to 1: the own side first."""


@dataclass(frozen=True)
class SheetStyle:
    """How a sheet looks.

    :param coverage: the fraction of a patch that the model sees; below 1 the corners of that area are marked.
    :param show_mask: tint what lies outside the mask.
    :param mask_opacity: of the tint, percent.
    :param mask_colour: of tint and corners, ``#rrggbb``.
    """

    coverage: float = 1.0
    show_mask: bool = True
    mask_opacity: float = 30
    mask_colour: str = "#ff0000"

    @property
    def colour(self) -> NDArray[Any]:
        """The colour as (3,) RGB, 0 to 1."""
        digits = self.mask_colour.lstrip("#")
        return np.array([int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)], np.float32)


def draw_sheet(sides: Sequence[SheetColumns], style: SheetStyle) -> Picture:
    """The sheet as (H, W, 3) uint8, RGB.

    A sheet that would be taller than wide is cut between two rows, and its lower part put to the right.

    :raises ArgumentValueError: no faces at all, or arrays whose shapes do not fit each other.
    """
    cell = _checked_cell(sides)
    names = shown_names([name for side in sides for name in (side.name, *side.predictions)], cell)
    columns: list[tuple[str, NDArray[np.uint8]]] = []
    for side in sides:
        columns.append((names[side.name], _original_cells(side, style)))
        for decoder, prediction in side.predictions.items():
            columns.append((f"{names[side.name]} > {names[decoder]}", _predicted_cells(side, prediction, style)))
    rows = max(len(cells) for _, cells in columns)
    blocks = 2 if rows > max(len(columns), 1) and rows > 1 else 1
    per_block = -(-rows // blocks)
    header = np.concatenate([_header(label, cell) for label, _ in columns], axis=1)
    pieces = []
    for block in range(blocks):
        body = np.concatenate(
            [_stack(cells[block * per_block : (block + 1) * per_block], per_block, cell) for _, cells in columns],
            axis=1,
        )
        pieces.append(np.concatenate([header, body], axis=0))
    return np.concatenate(pieces, axis=1)


def shown_names(sides: Sequence[str], cell: int) -> dict[str, str]:
    """What sides are called on a sheet: in capitals, and cut short where a label could not be read otherwise.

    Sides whose names begin alike, and are the same when cut, are called by their place: ``#1``, ``#2``.

    :param sides: all sides of the sheet, in their order; may repeat.
    :param cell: pixels that a label has.
    """
    capitals = {side: side.upper() for side in sides}
    shown = capitals
    for length in range(max(map(len, capitals.values())) - 1, 0, -1):
        widest = max(shown.values(), key=lambda name: _width(name, cell))
        if _width(f"{widest} > {widest}", cell) <= cell:
            break
        shown = {side: name if len(name) <= length else f"{name[:length]}." for side, name in capitals.items()}
    if len(set(shown.values())) == len(shown):
        return shown
    return {side: f"#{place}" for place, side in enumerate(capitals, start=1)}


def _width(text: str, cell: int) -> int:
    """Pixels that a text takes in the smallest letters that a label of ``cell`` pixels may have."""
    return cv2.getTextSize(text, _FONT, max(_LEAST_SCALE, cell / 512), 1)[0][0]


def _checked_cell(sides: Sequence[SheetColumns]) -> int:
    """The side of a cell in pixels, the same for all."""
    if not sides or not any(len(side.patches) for side in sides):
        raise ArgumentValueError("A preview needs at least one face.")
    cell = sides[0].patches.shape[1]
    for side in sides:
        count = len(side.patches)
        _check_shape(f"patches of side {side.name}", side.patches, (count, cell, cell, 3))
        if side.masks is not None:
            _check_shape(f"masks of side {side.name}", side.masks, (count, cell, cell))
        for decoder, prediction in side.predictions.items():
            out = prediction.shape[1]
            channels = prediction.shape[-1] if prediction.shape[-1] in (3, 4) else 3
            what = f"predictions of side {side.name} by {decoder}"
            _check_shape(what, prediction, (count, out, out, channels))
            if out > cell or (cell - out) % 2:
                raise ArgumentValueError(f"{what} have {out} pixels a side and cannot lie in the middle of {cell}.")
    return cell


def _check_shape(what: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ArgumentValueError(f"{what} have the shape {array.shape}; it should be {shape}.")


def _original_cells(side: SheetColumns, style: SheetStyle) -> NDArray[np.uint8]:
    patches = side.patches.astype(np.float32) / 255
    out = next((p.shape[1] for p in side.predictions.values()), patches.shape[1])
    inner = (patches.shape[1] - out) // 2
    foreground = patches[:, inner : inner + out, inner : inner + out]
    return _finished(_framed(patches, foreground, style), _patch_masks(side), style)


def _predicted_cells(side: SheetColumns, prediction: NDArray[Any], style: SheetStyle) -> NDArray[np.uint8]:
    patches = side.patches.astype(np.float32) / 255
    # A network may leave 0..1; as bytes such values would wrap around to the other end.
    prediction = np.clip(np.nan_to_num(prediction.astype(np.float32)), 0, 1)
    masks = _patch_masks(side)
    if prediction.shape[-1] == 4:
        out = prediction.shape[1]
        inner = (patches.shape[1] - out) // 2
        masks = np.zeros(patches.shape[:3], np.float32)
        masks[:, inner : inner + out, inner : inner + out] = prediction[..., 3]
    return _finished(_framed(patches, prediction[..., :3], style), masks, style)


def _patch_masks(side: SheetColumns) -> NDArray[Any] | None:
    return None if side.masks is None else side.masks.astype(np.float32) / 255


def _framed(patches: NDArray[Any], foreground: NDArray[Any], style: SheetStyle) -> NDArray[Any]:
    """The foreground on its patch, with a one-pixel bracket at each corner of the area that the model sees."""
    cell, out = patches.shape[1], foreground.shape[1]
    if style.coverage >= 1 and cell == out:
        return foreground
    result = patches.copy()
    inner = (cell - out) // 2
    length = cell // 4
    low, high = max(inner - 1, 0), min(cell - inner + 1, cell)
    for rows in (slice(low, low + length), slice(high - length, high)):
        for columns in (slice(low, low + length), slice(high - length, high)):
            result[:, rows, columns] = style.colour
    result[:, inner : inner + out, inner : inner + out] = foreground
    return result


def _finished(cells: NDArray[Any], masks: NDArray[Any] | None, style: SheetStyle) -> NDArray[np.uint8]:
    if style.show_mask and masks is not None:
        alpha = ((1 - masks) * np.float32(style.mask_opacity / 100))[..., None]
        cells = cells * (1 - alpha) + style.colour * alpha
    return np.clip(np.rint(cells * 255), 0, 255).astype(np.uint8)


def _stack(cells: NDArray[np.uint8], rows: int, cell: int) -> Picture:
    """``cells`` one below the other, with white below them up to ``rows``."""
    result = np.full((rows * cell, cell, 3), _WHITE, np.uint8)
    if len(cells):
        result[: len(cells) * cell] = cells.reshape(-1, cell, 3)
    return result


def _header(label: str, cell: int) -> Picture:
    height = int(cell / 4.5)
    strip = np.full((height, cell, 3), _WHITE, np.uint8)
    if height < 1:
        return strip
    scale, thickness = cell / 140, max(1, cell // 64)
    (width, tall), _ = cv2.getTextSize(label, _FONT, scale, thickness)
    fitted = min(1.0, cell * 0.96 / max(width, 1), height * 0.9 / max(tall, 1))
    scale, width, tall = scale * fitted, width * fitted, tall * fitted
    corner = (round((cell - width) / 2), round((height + tall) / 2))
    cv2.putText(strip, label, corner, _FONT, scale, (0, 0, 0), thickness, cv2.LINE_AA)
    return strip
