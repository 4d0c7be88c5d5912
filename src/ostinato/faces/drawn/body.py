"""What carries the head: neck, shoulders, ears."""

from __future__ import annotations

import numpy as np

from ostinato.faces.drawn import brushes
from ostinato.faces.drawn.brushes import Curve, Pixels
from ostinato.faces.drawn.head_view import HeadView
from ostinato.faces.drawn.identity import shade

# Half outlines in face units from the base of the neck, from the middle outwards; mirrored when drawn.
_SHOULDER = ((0.0, 0.86), (0.42, 0.72), (1.15, 0.90), (1.7, 1.25), (2.05, 3.0))
_COLLAR_OUTER = ((0.0, 0.95), (0.3, 0.86), (0.5, 0.68))
_COLLAR_INNER = ((0.38, 0.60), (0.0, 0.72))

_EAR = np.array(
    [
        (0.0, -0.16, 0.02),
        (0.07, -0.22, -0.06),
        (0.11, -0.13, -0.12),
        (0.095, 0.0, -0.12),
        (0.05, 0.11, -0.05),
        (0.0, 0.13, 0.03),
    ]
)


def paint_body(canvas: Pixels, view: HeadView) -> None:
    """Paint neck and shoulders in place. They follow the head's turn, and about a third of its roll."""
    identity = view.identity
    roll = np.radians(view.state.roll * 0.35)
    turn = np.array([[np.cos(roll), -np.sin(roll)], [np.sin(roll), np.cos(roll)]])
    base = view.head.project(np.array([[0.0, 0.45, -0.12]]))[0]

    def place(points: Curve) -> Curve:
        return view.pixels(points @ turn.T + base)

    brushes.fill(canvas, brushes.smooth(place(_mirrored(_SHOULDER)), closed=False), shade(identity.shirt, 0.95))
    collar = np.concatenate([_mirrored(_COLLAR_OUTER), _mirrored(_COLLAR_INNER[::-1])[::-1]])
    brushes.fill(canvas, brushes.smooth(place(collar), closed=True), shade(identity.shirt, 0.78))

    wide = 0.34 + 0.04 * identity.jaw_squareness
    neck = brushes.smooth(
        place(_mirrored(((0.0, 0.88), (wide + 0.1, 0.7), (wide - 0.02, 0.4), (wide, -0.3)))), closed=False
    )
    dim = 1 - 0.12 * view.state.light_strength
    skin = shade(identity.skin, (0.90 * dim, 0.84 * dim, 0.80 * dim))
    brushes.fill(canvas, neck, skin)
    # The chin throws a shadow, on the neck alone.
    opened = brushes.clipped_copy(canvas, neck)
    if opened is not None:
        window, drawn, mask, corner = opened
        chin = view.pixels(view.head.view[2:15, :2] + np.array([0.0, 0.09]))
        brushes.soft_fill(drawn, chin - corner, shade(skin, (0.74, 0.66, 0.66)), 0.85, 0.04 * view.unit)
        brushes.blend_copy(window, drawn, mask)


def paint_ear(canvas: Pixels, view: HeadView, side: float) -> None:
    """Paint one ear in place; ``side`` is 1 for the image's right, -1 for its left."""
    size = view.identity.ear_size
    at = np.array([side * 0.60 * view.identity.face_width, -0.04, -0.02])
    outer = _EAR * np.array([side * size, size, size]) + at
    lit = 0.92 + 0.14 * view.state.light_strength * side * float(view.light[0])
    skin = view.identity.skin
    brushes.fill(canvas, view.curve(outer, closed=True), shade(skin, (lit * 0.95, lit * 0.92, lit * 0.91)))
    middle = outer.mean(axis=0)
    inner = view.curve(middle + (outer - middle) * 0.55, closed=True)
    brushes.fill(canvas, inner, shade(skin, (lit * 0.83, lit * 0.75, lit * 0.74)))


def _mirrored(half: tuple[tuple[float, float], ...]) -> Curve:
    """A whole outline from left to right, from the half that starts in the middle or ends there."""
    right = np.asarray(half)
    left = right[::-1] * (-1, 1)
    return np.concatenate([left[right[::-1, 0] > 0], right])
