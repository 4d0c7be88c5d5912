"""The curve of a search for a learning rate, as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.optim.rate_finder import STRENGTHS, RateFinder, RatePoint

Picture = NDArray[np.uint8]

WIDTH, HEIGHT = 1000, 620
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 970, 60, 540  # the frame of the curve
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_BLACK, _GREY, _LIGHT, _PALE, _BLUE = (30, 30, 30), (120, 120, 120), (225, 225, 225), (190, 205, 225), (40, 90, 180)
_COLOURS = {"default": (30, 150, 60), "aggressive": (230, 160, 0), "extreme": (210, 40, 40)}
_SKIPPED = 10  # at the beginning the smoothed loss is an average over too few batches


def draw_rate_curve(finder: RateFinder, strength: str) -> Picture:
    """Draw the smoothed loss over the rate, and what each strength makes of it.

    The losses of single batches stand behind the curve. The first ten batches and the last one, which is where the
    search gave up, are left out, unless hardly anything would remain.

    :param finder: a search that is over.
    :param strength: the one in use; it is said so.
    :return: (620, 1000, 3), RGB.
    """
    canvas = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    shown = finder.points[_SKIPPED:-1]
    points = shown if len(shown) > 1 else finder.points
    title = "Search for the learning rate" + ("" if finder.result(strength) else ": none was found")
    _text(canvas, title, (_LEFT, 32), 0.8, _BLACK)
    if len(points) < 2:
        _text(canvas, "No batch had a finite loss.", (_LEFT, HEIGHT // 2), 0.7, _GREY)
        return canvas
    axes = _Axes(points)
    axes.draw(canvas)
    inside = canvas[_TOP:_BOTTOM, _LEFT:_RIGHT]  # what leaves the frame is cut off by it
    for point in points:
        if math.isfinite(point.loss):
            cv2.circle(inside, axes.inside(point.rate, point.loss), 1, _PALE, -1, cv2.LINE_AA)
    curve = [axes.inside(point.rate, point.smoothed) for point in points if math.isfinite(point.smoothed)]
    cv2.polylines(inside, [np.array(curve, np.int32)], False, _BLUE, 2, cv2.LINE_AA)
    cv2.rectangle(canvas, (_LEFT, _TOP), (_RIGHT, _BOTTOM), _GREY, 1)
    _mark_strengths(canvas, axes, finder, points, strength)
    return canvas


def _mark_strengths(
    canvas: Picture, axes: _Axes, finder: RateFinder, points: Sequence[RatePoint], strength: str
) -> None:
    assert finder.best is not None
    column = _LEFT
    for name, divisor in STRENGTHS.items():
        rate = finder.best.rate / divisor
        height = next((point.smoothed for point in points if point.rate >= rate), points[-1].smoothed)
        words = f"{name} {rate:.1e}" + (" (chosen)" if name == strength and finder.result(name) else "")
        if axes.has(rate):
            x, y = axes.inside(rate, height)
            cv2.circle(canvas, (_LEFT + x, _TOP + y), 7, _COLOURS[name], -1, cv2.LINE_AA)
            cv2.circle(canvas, (_LEFT + x, _TOP + y), 7, _BLACK, 1, cv2.LINE_AA)
        cv2.circle(canvas, (column + 6, HEIGHT - 22), 6, _COLOURS[name], -1, cv2.LINE_AA)
        _text(canvas, words, (column + 20, HEIGHT - 16), 0.55, _BLACK)
        column += 300


class _Axes:
    """Rates on a logarithmic axis, losses on a linear one, inside the frame."""

    def __init__(self, points: Sequence[RatePoint]) -> None:
        self._low, self._high = math.log10(points[0].rate), math.log10(points[-1].rate)
        losses = [point.smoothed for point in points if math.isfinite(point.smoothed)]
        lowest, highest = min(losses), max(losses)
        # A divergence would press everything before it flat.
        highest = min(highest, lowest + 1.5 * max(losses[0] - lowest, 0.1 * abs(lowest), 1e-9))
        margin = 0.06 * (highest - lowest) or 0.05 * abs(lowest) or 1.0
        self._bottom, self._top = lowest - margin, highest + margin

    def has(self, rate: float) -> bool:
        """Whether a rate lies within the frame."""
        return self._low <= math.log10(rate) <= self._high

    def inside(self, rate: float, loss: float) -> tuple[int, int]:
        """Column and row within the frame; may lie outside of it."""
        x = (math.log10(rate) - self._low) / (self._high - self._low) * (_RIGHT - _LEFT)
        y = (self._top - loss) / (self._top - self._bottom) * (_BOTTOM - _TOP)
        return round(x), round(min(max(y, -10_000), 10_000))

    def draw(self, canvas: Picture) -> None:
        """Lines and numbers."""
        for exponent in range(math.ceil(self._low), math.floor(self._high) + 1):
            x = _LEFT + self.inside(10.0**exponent, self._bottom)[0]
            cv2.line(canvas, (x, _TOP), (x, _BOTTOM), _LIGHT, 1)
            _text(canvas, f"1e{exponent}", (x - 20, _BOTTOM + 20), 0.45, _GREY)
        step = _step((self._top - self._bottom) / 6)
        decimals = max(0, -math.floor(math.log10(step)))
        for number in range(math.ceil(self._bottom / step), math.floor(self._top / step) + 1):
            y = _TOP + self.inside(10.0**self._low, number * step)[1]
            cv2.line(canvas, (_LEFT, y), (_RIGHT, y), _LIGHT, 1)
            _text(canvas, f"{number * step:.{decimals}f}", (16, y + 5), 0.45, _GREY)
        _text(canvas, "smoothed loss", (16, _TOP - 10), 0.45, _GREY)
        _text(canvas, "learning rate", (_RIGHT - 100, _BOTTOM + 42), 0.45, _GREY)


def _step(rough: float) -> float:
    """The round number (1, 2 or 5 times a power of ten) next above."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)


def _text(canvas: Picture, words: str, place: tuple[int, int], size: float, colour: tuple[int, int, int]) -> None:
    cv2.putText(canvas, words, place, _FONT, size, colour, 1, cv2.LINE_AA)
