"""Paints a person: background, what hangs behind the head, body, face, light on the face, hair. Back to front.

Everything is placed on the head in three dimensions and mapped to pixels by one affine matrix, so a picture drawn
straight into an aligned crop is as sharp as one drawn into a frame.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.faces.drawn import brushes, features
from ostinato.faces.drawn.body import paint_body, paint_ear
from ostinato.faces.drawn.brushes import Pixels
from ostinato.faces.drawn.hair import HAIR_SHAPES
from ostinato.faces.drawn.hair_painting import paint_hair, paint_hair_behind
from ostinato.faces.drawn.head_view import HeadView
from ostinato.faces.drawn.shading import smoothstep
from ostinato.faces.drawn.state import FaceState

_FRONTAL = 8.0
"""Degrees of yaw below which both ears stand out behind the head."""

_SPOTS = ((0.14, 0.22, 0.17, 255), (0.87, 0.30, 0.22, 255), (0.80, 0.86, 0.20, 90))
"""Round shapes of the background: x and y of the frame, radius of its height, the grey they lean to."""


def paint_background(canvas: Pixels, state: FaceState, to_pixels: NDArray[Any]) -> None:
    """Fill ``canvas`` in place with the background of ``state``.

    :param to_pixels: (2, 3) matrix from frame pixels to canvas pixels, so that a crop shows the part it covers.
    """
    height, width = canvas.shape[:2]
    back = cv2.invertAffineTransform(to_pixels)
    frame_height, frame_width = state.frame_size
    upper, lower = (np.asarray(colour, float) for colour in state.background)
    ramp = upper + (lower - upper) * np.linspace(0, 1, 256)[:, None]
    # The colour runs from the upper to the lower edge of the frame, with a lean to one side.
    slope = 255 * (back[1] / frame_height + 0.25 * (back[0] / frame_width - np.array([0, 0, 0.5])))
    down = np.arange(height, dtype=np.float32)[:, None] * np.float32(slope[1]) + np.float32(slope[2])
    along = np.clip(np.arange(width, dtype=np.float32) * np.float32(slope[0]) + down, 0, 255).astype(np.uint8)
    np.take(np.rint(ramp).astype(np.uint8), along, axis=0, out=canvas)
    size = float(np.sqrt(abs(np.linalg.det(to_pixels[:, :2]))))
    for across, high, radius, grey in _SPOTS:
        base = ramp[int(np.clip(255 * (high + 0.25 * (across - 0.5)), 0, 255))]
        r, g, b = (int(v) for v in np.rint(base + (grey - base) * 0.13))
        middle = to_pixels @ np.array([across * frame_width, high * frame_height, 1.0])
        brushes.disc(canvas, middle, radius * frame_height * size, (r, g, b))


def paint_person(canvas: Pixels, view: HeadView) -> Pixels:
    """Paint the person over ``canvas`` in place.

    Returns the mask of the visible face, (h, w) uint8: skin and beard that hair leaves free.
    """
    far = 1.0 if view.state.yaw > 0 else -1.0
    has_ears = HAIR_SHAPES[view.identity.hair_style].ears
    is_frontal = abs(view.state.yaw) < _FRONTAL
    paint_hair_behind(canvas, view)
    paint_body(canvas, view)
    if has_ears:
        paint_ear(canvas, view, far)
        if is_frontal:
            paint_ear(canvas, view, -far)
    face = _paint_face(canvas, view)
    if has_ears and not is_frontal:
        paint_ear(canvas, view, -far)
    hair = paint_hair(canvas, view)
    if view.identity.glasses is not None:
        features.paint_glasses(canvas, view, view.identity.glasses)
    return np.minimum(face, 255 - hair)


def _paint_face(canvas: Pixels, view: HeadView) -> Pixels:
    """Paint the face in place, cut by the head's outline; returns its mask."""
    face = np.zeros(canvas.shape[:2], np.uint8)
    brushes.fill(face, view.outline(), 255)
    layer = np.empty_like(canvas)
    layer[:] = view.identity.skin
    features.paint_cheeks(layer, view)
    features.paint_nose(layer, view)
    features.paint_eyes(layer, view)
    beard = features.beard_mask(face.shape, view)
    if beard is not None:
        brushes.blend(layer, beard, view.identity.brow, 0.94)
        np.maximum(face, beard, out=face)
    features.paint_mouth(layer, view)
    features.paint_brows(layer, view)
    rows, columns = np.flatnonzero(face.any(axis=1)), np.flatnonzero(face.any(axis=0))
    if len(rows) and len(columns):
        window = slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)
        lit = layer[window] * _light_on_face(view, window)
        picture = canvas[window].astype(np.float32)
        alpha = face[window].astype(np.float32)[..., None] / 255
        canvas[window] = np.clip(np.rint(picture + (lit - picture) * alpha), 0, 255).astype(np.uint8)
    return face


def _light_on_face(view: HeadView, window: tuple[slice, slice]) -> NDArray[np.float32]:
    """(h, w, 3) factors: the light that falls on an ellipsoid around head and jaw."""
    body = view.ellipsoid(np.array([0.0, 0.06, -0.04]), view.head.skull_radii * (1.06, 1.32, 1.05))
    surface = body.surface(window)
    amount = smoothstep(-0.25, 0.85, surface.facing(view.light))
    # Skin darkens towards its outline, which lifts the head off the background.
    amount = amount * (0.8 + 0.2 * smoothstep(0.0, 0.75, surface.towards_viewer()))
    strength = view.state.light_strength
    high = np.asarray(view.state.light_colour, np.float32) * np.float32(1.0 + 0.05 * strength)
    # Shadows on skin lose green most and red least.
    low = 1 - strength * np.array([0.46, 0.54, 0.52], np.float32)
    return (low + (high - low) * amount[..., None]).astype(np.float32)
