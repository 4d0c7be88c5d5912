"""The few strokes a face is made of: smooth curves, filled shapes, soft patches. Sub-pixel places, anti-aliased."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.faces.drawn.identity import Colour

Pixels = NDArray[np.uint8]
Curve = NDArray[Any]
"""(n, 2) positions in pixels, x and y; pixel centres have whole numbers."""

_SHIFT = 4
_ONE = 1 << _SHIFT


def smooth(points: Curve, *, closed: bool, steps: int = 5) -> Curve:
    """A Catmull-Rom curve through ``points``.

    :param steps: curve points per given point.
    """
    return _spline_basis(len(points), closed, steps) @ points


@lru_cache(maxsize=64)
def _spline_basis(count: int, closed: bool, steps: int) -> NDArray[Any]:
    spans = count if closed else count - 1
    rows = np.zeros((spans * steps + (not closed), count))
    for row in range(len(rows)):
        at = row / steps
        span = min(int(at), spans - 1)
        t = at - span
        weights = (
            -0.5 * t + t**2 - 0.5 * t**3,
            1 - 2.5 * t**2 + 1.5 * t**3,
            0.5 * t + 2 * t**2 - 1.5 * t**3,
            -0.5 * t**2 + 0.5 * t**3,
        )
        for offset, weight in zip(range(-1, 3), weights, strict=True):
            at_point = span + offset
            at_point = at_point % count if closed else min(max(at_point, 0), count - 1)
            rows[row, at_point] += weight
    return rows


def fixed_point(points: Curve) -> NDArray[np.int32]:
    """``points`` as the drawing library's fixed-point integers, for ``shift=4``."""
    return np.rint(points * _ONE).astype(np.int32)


def fill(image: Pixels, shape: Curve, colour: Colour | int) -> None:
    """Fill the closed ``shape`` in place; ``image`` has one or three channels."""
    cv2.fillPoly(image, [fixed_point(shape)], _scalar(colour), lineType=cv2.LINE_AA, shift=_SHIFT)


def stroke(image: Pixels, curve: Curve, colour: Colour | int, width: float, *, closed: bool = False) -> None:
    """Draw ``curve`` in place with a pen ``width`` pixels wide; thin pens fade instead of vanishing."""
    pen = max(1, round(width))
    if width < 0.75 and not isinstance(colour, int):
        soft_fill(image, _ribbon(curve, max(width, 0.3)), colour, 0.8, 0.3)
        return
    cv2.polylines(
        image, [fixed_point(curve)], closed, _scalar(colour), thickness=pen, lineType=cv2.LINE_AA, shift=_SHIFT
    )


def tapered(image: Pixels, curve: Curve, widths: NDArray[Any], colour: Colour | int) -> None:
    """Fill a stroke whose full width in pixels changes along ``curve``; ``widths`` has one value per point."""
    fill(image, _ribbon(curve, widths), colour)


@lru_cache(maxsize=64)
def profile(count: int, places: tuple[float, ...], values: tuple[float, ...]) -> NDArray[Any]:
    """(count,) values along a stroke, interpolated between ``places`` from 0 (its start) to 1 (its end)."""
    return np.interp(np.linspace(0, 1, count), places, values)


@lru_cache(maxsize=8)
def unit_circle(count: int) -> NDArray[Any]:
    """(count, 3): points on the unit circle in the plane z = 0."""
    angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
    return np.stack([np.cos(angle), np.sin(angle), np.zeros(count)], axis=1)


def _ribbon(curve: Curve, widths: NDArray[Any] | float) -> Curve:
    along = np.empty_like(curve)
    along[1:-1] = curve[2:] - curve[:-2]
    along[0], along[-1] = curve[1] - curve[0], curve[-1] - curve[-2]
    normal = along[:, ::-1] * (-1, 1)
    normal /= np.maximum(np.hypot(normal[:, 0], normal[:, 1])[:, None], 1e-9)
    half = np.broadcast_to(np.asarray(widths, dtype=float) / 2, len(curve))[:, None]
    return np.concatenate([curve + normal * half, (curve - normal * half)[::-1]])


def disc(image: Pixels, centre: Curve, radius: float, colour: Colour | int) -> None:
    """Fill a circle in place."""
    x, y = fixed_point(np.asarray(centre, dtype=float))
    cv2.circle(image, (int(x), int(y)), max(1, round(radius * _ONE)), _scalar(colour), -1, cv2.LINE_AA, _SHIFT)


def soft_fill(image: Pixels, shape: Curve, colour: Colour, opacity: float, sigma: float) -> None:
    """Blend ``colour`` into ``image`` in place inside ``shape``, with an edge blurred by ``sigma`` pixels."""
    margin = 3 * sigma + 2
    box = _window(image, shape.min(axis=0) - margin, shape.max(axis=0) + margin)
    if box is None:
        return
    rows, columns, corner = box
    mask = np.zeros((rows.stop - rows.start, columns.stop - columns.start), np.uint8)
    fill(mask, shape - corner, 255)
    if sigma >= 0.3:
        mask = np.asarray(cv2.GaussianBlur(mask, (0, 0), sigma), dtype=np.uint8)
    blend(image[rows, columns], mask, colour, opacity)


def clipped_copy(image: Pixels, shape: Curve) -> tuple[Pixels, Pixels, Pixels, Curve] | None:
    """A window around ``shape`` for drawing inside it.

    Returns a view of ``image``, a copy of it to draw on, the anti-aliased mask of ``shape`` and the window's corner
    (x, y); None when ``shape`` is outside. Finish with :func:`blend_copy`.
    """
    box = _window(image, shape.min(axis=0) - 2, shape.max(axis=0) + 2)
    if box is None:
        return None
    rows, columns, corner = box
    window = image[rows, columns]
    mask = np.zeros(window.shape[:2], np.uint8)
    fill(mask, shape - corner, 255)
    return window, window.copy(), mask, corner


def blend_copy(window: Pixels, drawn: Pixels, mask: Pixels) -> None:
    """Put ``drawn`` over ``window`` in place where ``mask`` says so."""
    alpha = (mask * np.float32(1 / 255))[..., None]
    window[:] = window + (drawn.astype(np.float32) - window) * alpha + np.float32(0.5)


def blend(window: Pixels, mask: Pixels, colour: Colour, opacity: float = 1.0) -> None:
    """Blend ``colour`` into ``window`` in place where ``mask`` (uint8) says so."""
    alpha = (mask * np.float32(opacity / 255))[..., None]
    window[:] = window + (np.asarray(colour, np.float32) - window) * alpha + np.float32(0.5)


def _window(image: Pixels, low: Curve, high: Curve) -> tuple[slice, slice, Curve] | None:
    height, width = image.shape[:2]
    left, top = max(0, int(np.floor(low[0]))), max(0, int(np.floor(low[1])))
    right, bottom = min(width, int(np.ceil(high[0])) + 1), min(height, int(np.ceil(high[1])) + 1)
    if left >= right or top >= bottom:
        return None
    return slice(top, bottom), slice(left, right), np.array([left, top], dtype=float)


def _scalar(colour: Colour | int) -> tuple[int, ...]:
    return (colour,) if isinstance(colour, int) else colour
