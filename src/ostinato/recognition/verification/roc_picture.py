"""The curves of verified pairs as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.errors import ArgumentValueError
from ostinato.recognition.verification.result import VerificationResult
from ostinato.recognition.verification.roc_curve import RocCurve

Picture = NDArray[np.uint8]
Colour = tuple[int, int, int]

WIDTH, HEIGHT = 960, 720
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 30, 60, 80
_INK: Colour = (40, 40, 40)
_GRID: Colour = (225, 225, 225)
_COLOURS: tuple[Colour, ...] = (
    (31, 90, 180),
    (214, 84, 24),
    (44, 140, 60),
    (140, 60, 150),
    (150, 110, 20),
    (90, 90, 90),
)
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_LOWEST_DECADE = -9


def draw_roc(results: Sequence[tuple[str, VerificationResult]], title: str = "") -> Picture:
    """Draw true accepts over false accepts, (720, 960, 3) uint8 RGB, one curve for each set of pairs.

    The horizontal axis is logarithmic and begins at the smallest rate that the largest set can show, one of its
    different pairs; a curve begins at the smallest that its own set can show. Curves are staircases: the height at a
    rate is what is accepted without exceeding it. Rings mark the rates that were reported and that the set supports.

    :param results: name and result.
    :param title: letters that the font lacks become question marks.
    :raises ArgumentValueError: nothing to draw.
    """
    if not results:
        raise ArgumentValueError("There is no curve to draw.", advice="Give at least one result.")
    most = max(result.different_pairs for _, result in results)
    axes = _Axes(max(_LOWEST_DECADE, math.floor(math.log10(1 / most) + 1e-9)), _lowest_height(results))
    picture = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    axes.draw(picture)
    _centred(picture, title, ((WIDTH + _LEFT - _RIGHT) // 2, _TOP - 20))
    for number, (name, result) in enumerate(results):
        colour = _COLOURS[number % len(_COLOURS)]
        points = _staircase(result.roc, 1 / result.different_pairs)
        corners = np.asarray(_without_middles([axes.place(far, tar) for far, tar in points]), np.int32)
        cv2.polylines(picture, [corners], False, colour, 2, cv2.LINE_AA)
        for acceptance in result.acceptances:
            if acceptance.is_supported:
                ring = axes.place(acceptance.target, height_at(result.roc, acceptance.target))
                cv2.circle(picture, ring, 6, colour, 2, cv2.LINE_AA)
        line = HEIGHT - _BOTTOM - 20 - 26 * (len(results) - 1 - number)
        legend = f"{name}  {100 * result.accuracy.mean:.2f} % +- {100 * result.accuracy.std:.2f}"
        width = cv2.getTextSize(legend, _FONT, 0.5, 1)[0][0]
        start = WIDTH - _RIGHT - width - 60
        cv2.line(picture, (start, line - 5), (start + 34, line - 5), colour, 2, cv2.LINE_AA)
        _text(picture, legend, (start + 44, line), 0.5)
    return picture


def height_at(curve: RocCurve, far: float) -> float:
    """The largest rate of true accepts without more false accepts than ``far``."""
    return float(curve.tar[int(np.searchsorted(curve.far, far, side="right")) - 1])


def _staircase(curve: RocCurve, smallest: float) -> list[tuple[float, float]]:
    points = [(smallest, height_at(curve, 0.0))]
    for far, tar in zip(map(float, curve.far), map(float, curve.tar), strict=True):
        if far >= smallest:
            points += [(far, points[-1][1]), (far, tar)]
    return points


def _without_middles(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The corners alone: the many short pieces of a straight line would be drawn as beads."""
    kept: list[tuple[int, int]] = []
    for point in points:
        if len(kept) > 1 and any(kept[-2][axis] == kept[-1][axis] == point[axis] for axis in (0, 1)):
            kept.pop()
        if not kept or kept[-1] != point:
            kept.append(point)
    return kept


def _lowest_height(results: Sequence[tuple[str, VerificationResult]]) -> float:
    lowest = min(height_at(result.roc, 0.0) for _, result in results)
    return min(0.9, math.floor(10 * lowest) / 10)


class _Axes:
    """Where rates are in the picture.

    :param decade: the smallest rate of false accepts is ten to this power.
    :param bottom: the smallest rate of true accepts.
    """

    def __init__(self, decade: int, bottom: float) -> None:
        self._decade = min(decade, -1)
        self._bottom = bottom

    def place(self, far: float, tar: float) -> tuple[int, int]:
        """The pixel (x, y) of a point."""
        x = (math.log10(far) - self._decade) / -self._decade
        y = (tar - self._bottom) / (1 - self._bottom)
        return (
            round(_LEFT + max(x, 0.0) * (WIDTH - _LEFT - _RIGHT)),
            round(HEIGHT - _BOTTOM - y * (HEIGHT - _TOP - _BOTTOM)),
        )

    def draw(self, picture: Picture) -> None:
        """Draw the grid, the frame and what the axes mean."""
        for decade in range(self._decade, 1):
            x, _ = self.place(10.0**decade, 1.0)
            cv2.line(picture, (x, _TOP), (x, HEIGHT - _BOTTOM), _GRID, 1)
            _centred(picture, _percent(10.0**decade), (x, HEIGHT - _BOTTOM + 24))
        for step in range(11):
            height = self._bottom + (1 - self._bottom) * step / 10
            _, y = self.place(1.0, height)
            cv2.line(picture, (_LEFT, y), (WIDTH - _RIGHT, y), _GRID, 1)
            _text(picture, f"{100 * height:.3g} %", (_LEFT - 66, y + 5), 0.45)
        cv2.rectangle(picture, (_LEFT, _TOP), (WIDTH - _RIGHT, HEIGHT - _BOTTOM), _INK, 1)
        _centred(picture, "false accepts, of pairs of different people", ((WIDTH + _LEFT - _RIGHT) // 2, HEIGHT - 24))
        _text(picture, "true accepts, of pairs of the same person", (8, _TOP - 20), 0.45)


def _percent(rate: float) -> str:
    return f"{100 * rate:.10f}".rstrip("0").rstrip(".") + " %"


def _text(picture: Picture, text: str, corner: tuple[int, int], scale: float) -> None:
    plain = text.encode("ascii", "replace").decode()
    cv2.putText(picture, plain, corner, _FONT, scale, _INK, 1, cv2.LINE_AA)


def _centred(picture: Picture, text: str, middle: tuple[int, int]) -> None:
    width = cv2.getTextSize(text, _FONT, 0.45, 1)[0][0]
    _text(picture, text, (middle[0] - width // 2, middle[1]), 0.45)
