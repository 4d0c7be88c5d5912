"""The parts of a face: cheeks, nose, eyes, brows, mouth, beard, glasses. Each function paints in place on RGB uint8.

Colours are those of flat light; the light on the face as a whole is laid over them afterwards.
"""

from __future__ import annotations

import cv2
import numpy as np

from ostinato.faces.drawn import brushes
from ostinato.faces.drawn.brushes import Pixels
from ostinato.faces.drawn.face_model import Points
from ostinato.faces.drawn.head_view import HeadView
from ostinato.faces.drawn.identity import Colour, shade

_EYEBALL: Colour = (246, 243, 238)
_PUPIL: Colour = (18, 15, 17)
_TEETH: Colour = (246, 242, 234)
_THROAT: Colour = (74, 26, 30)
_TONGUE: Colour = (190, 86, 88)
_RIGHT, _DOWN, _NEAR = np.eye(3)


def paint_cheeks(layer: Pixels, view: HeadView) -> None:
    """Rosy cheeks, and freckles where there are any."""
    identity = view.identity
    rosy = shade(identity.skin, (1.02, 0.80, 0.78))
    lift = 0.03 * max(view.state.smile, 0)
    for side in (-1.0, 1.0):
        centre = np.array([side * 0.36 * identity.face_width, 0.27 - lift, 0.50])
        brushes.soft_fill(layer, view.ring(centre, (0.13, 0.095)), rosy, 0.55, 0.05 * view.unit)
    if identity.freckles:
        rng = np.random.default_rng((0xF4EC, identity.detail_seed))
        x = rng.uniform(0.03, 0.40, identity.freckles) * np.where(np.arange(identity.freckles) % 2, 1, -1)
        y = rng.normal(0.2, 0.06, identity.freckles)
        places = view.at(np.stack([x, y, 0.66 - 0.9 * x * x], axis=1))
        spotted = layer.copy()
        for place, size in zip(places, rng.uniform(0.008, 0.014, identity.freckles), strict=True):
            brushes.disc(spotted, place, size * view.unit, shade(identity.skin, (0.80, 0.70, 0.62)))
        cv2.addWeighted(spotted, 0.7, layer, 0.3, 0, dst=layer)


def paint_nose(layer: Pixels, view: HeadView) -> None:
    """Bridge, wings and nostrils; the flank turned away from the light is darker."""
    nose, skin, unit = view.landmarks[27:36], view.identity.skin, view.unit
    towards = float((view.head.rotation.T @ view.light)[0])
    wing = 0.085 * view.identity.nose_width
    for side in (-1.0, 1.0):
        amount = 0.22 + 0.5 * view.state.light_strength * max(0.0, -side * towards)
        flank = [
            nose[0] + (side * 0.03, -0.05, -0.04),
            nose[1],
            nose[3],
            nose[6] + (0, -0.01, 0.02),
            nose[6] + (side * wing * 1.3, -0.02, -0.06),
            nose[2] + (side * wing * 0.85, 0, -0.13),
        ]
        brushes.soft_fill(layer, view.at(np.array(flank)), shade(skin, (0.84, 0.76, 0.73)), amount, 0.018 * unit)
    lit = shade(skin, (1.07, 1.06, 1.05))
    narrow = np.array([nose[0], nose[1] + (0.015, 0, 0), nose[2] + (0.02, 0, 0)])
    bridge = np.concatenate([narrow, narrow[:0:-1] * (-1, 1, 1)])
    brushes.soft_fill(layer, view.at(bridge), lit, 0.45, 0.016 * unit)
    brushes.soft_fill(layer, view.ring(nose[3], (0.045, 0.036)), lit, 0.75, 0.022 * unit)
    wings = nose[4:9].copy()
    wings[[0, 4], 0] *= 1.12
    ends = wings[[0, 4]] + [(-0.012, -0.055, -0.02), (0.012, -0.055, -0.02)]
    base = view.curve(np.concatenate([ends[:1], wings, ends[1:]]))
    widths = brushes.profile(len(base), (0, 0.15, 0.5, 0.85, 1), (0.004, 0.02, 0.012, 0.02, 0.004))
    brushes.tapered(layer, base, widths * unit, shade(skin, (0.68, 0.58, 0.55)))
    for point in (nose[5], nose[7]):
        hole = view.ring(point + 0.008 * (np.sign(point[0]) * _RIGHT - _DOWN), (0.027, 0.013))
        brushes.soft_fill(layer, hole, shade(skin, (0.45, 0.36, 0.34)), 0.8, max(0.004 * unit, 0.3))


def paint_eyes(layer: Pixels, view: HeadView) -> None:
    """Both eyes with lids and lashes."""
    for first, side in ((36, -1.0), (42, 1.0)):
        _paint_eye(layer, view, view.landmarks[first : first + 6], side)


def _paint_eye(layer: Pixels, view: HeadView, lids: Points, side: float) -> None:
    identity, skin, unit = view.identity, view.identity.skin, view.unit
    middle, width = lids.mean(axis=0), float(np.ptp(lids[:, 0]))
    socket = view.ring(middle - 0.035 * _DOWN - 0.01 * _NEAR, (width * 0.62, width * 0.43))
    brushes.soft_fill(layer, socket, shade(skin, (0.87, 0.80, 0.78)), 0.55, 0.03 * unit)
    opened = brushes.clipped_copy(layer, view.curve(lids, closed=True, steps=6))
    if opened is not None:
        window, drawn, mask, corner = opened
        drawn[:] = _EYEBALL
        gaze = (view.state.gaze[0] * width * 0.16, view.state.gaze[1] * 0.026, 0.0)
        iris = view.at((middle + gaze)[None])[0] - corner
        radius = 0.050 * (0.4 * identity.eye_width + 0.6 * identity.eye_height) * unit
        bright = shade(identity.eye, 1.32)
        low = np.array([0.0, radius * 0.34])
        brushes.disc(drawn, iris, radius, shade(identity.eye, 0.5))
        brushes.disc(drawn, iris, radius * 0.87, identity.eye)
        brushes.disc(drawn, iris + low, radius * 0.5, bright)
        brushes.disc(drawn, iris, radius * 0.48, _PUPIL)
        glint = np.array([np.sign(view.light[0]) or 1.0, -1.0]) * radius * 0.36
        brushes.disc(drawn, iris + glint, radius * 0.26, (255, 255, 255))
        brushes.disc(drawn, iris - glint * 0.8, radius * 0.11, (236, 236, 240))
        lid = view.at(lids[:4] + 0.010 * _DOWN) - corner
        under_lid = np.concatenate([lid, (lid - np.array([0, 0.1 * unit]))[::-1]])
        brushes.soft_fill(drawn, under_lid, (96, 84, 92), 0.42, max(0.012 * unit, 0.3))
        brushes.blend_copy(window, drawn, mask)
    upper = lids[:4] if side < 0 else lids[3::-1]  # from the outer corner to the inner one
    wing = upper[0] + (side * 0.022, -0.014 * identity.lashes - 0.004, -0.02)
    lash = view.curve(np.concatenate([[wing], upper]), steps=6)
    heavy = 0.022 + 0.020 * identity.lashes
    widths = brushes.profile(len(lash), (0, 0.25, 0.6, 1), (0.006, heavy, heavy * 0.85, 0.012))
    brushes.tapered(layer, lash, widths * unit, shade(skin, (0.26, 0.22, 0.22)))
    crease = upper - np.array([0.036, 0.050, 0.050, 0.036])[:, None] * _DOWN
    brushes.tapered(layer, view.curve(crease), np.full(16, 0.012 * unit), shade(skin, (0.72, 0.62, 0.58)))
    lower = view.curve(lids[[3, 4, 5, 0]])
    brushes.tapered(layer, lower, np.full(len(lower), 0.010 * unit), shade(skin, (0.68, 0.56, 0.54)))


def paint_brows(layer: Pixels, view: HeadView) -> None:
    """Brows, thick at the nose and thin at the temples."""
    thick = 0.055 * view.identity.brow_thickness
    for points, taper in (
        (view.landmarks[17:22], (0.12, 0.65, 0.95, 1.0, 0.7)),
        (view.landmarks[22:27], (0.7, 1.0, 0.95, 0.65, 0.12)),
    ):
        curve = view.curve(points)
        widths = brushes.profile(len(curve), (0, 0.25, 0.5, 0.75, 1), taper) * thick
        brushes.tapered(layer, curve, widths * view.unit, view.identity.brow)


def paint_mouth(layer: Pixels, view: HeadView) -> None:
    """Lips; teeth and tongue where the mouth is open."""
    points, lip, skin, unit = view.landmarks, view.identity.lip, view.identity.skin, view.unit
    outer = view.curve(points[48:60], closed=True)
    below = outer + np.array([0, 0.04 * unit])
    brushes.soft_fill(layer, below, shade(skin, (0.84, 0.76, 0.74)), 0.4, 0.025 * unit)
    brushes.fill(layer, outer, lip)
    upper = np.concatenate([points[48:55], points[[64, 63, 62, 61, 60]]])
    brushes.fill(layer, view.at(upper), shade(lip, 0.84))
    shine = view.at(points[[58, 57, 56]] + (0, -0.030, 0.01))
    shine = np.concatenate([shine, shine[::-1] - np.array([0, 0.02 * unit])])
    brushes.soft_fill(layer, shine, shade(lip, 1.25), 0.7, max(0.012 * unit, 0.3))
    gap = float(points[66, 1] - points[62, 1])
    if gap > 0.02:
        _paint_open_mouth(layer, view, gap)
    else:
        line = view.curve((points[[60, 61, 62, 63, 64]] + points[[60, 67, 66, 65, 64]]) / 2)
        widths = brushes.profile(len(line), (0, 0.2, 0.8, 1), (0.010, 0.018, 0.018, 0.010))
        brushes.tapered(layer, line, widths * unit, shade(lip, 0.42))
    for corner in (points[48], points[54]):
        brushes.soft_fill(layer, view.ring(corner, (0.016, 0.016)), shade(skin, 0.6), 0.6, 0.01 * unit)


def _paint_open_mouth(layer: Pixels, view: HeadView, gap: float) -> None:
    inner = view.landmarks[60:68]
    # Two more points between corners and lower lip, so that an open mouth is round and not a triangle.
    fuller = [
        corner + (edge - corner) * (0.45, 0.72, 0.5) for corner, edge in ((inner[4], inner[5]), (inner[0], inner[7]))
    ]
    rim = view.curve(np.concatenate([inner[:5], fuller[:1], inner[5:], fuller[1:]]), closed=True)
    opened = brushes.clipped_copy(layer, rim)
    if opened is None:
        return
    window, drawn, mask, corner = opened
    drawn[:] = _THROAT
    tongue = view.ring(inner[6] + (0, 0.015, -0.05), (0.13, min(0.055, gap * 0.5)))
    brushes.fill(drawn, tongue - corner, _TONGUE)
    # Teeth hang from the upper jaw, whatever the lips do; a narrow gap shows less of them.
    edge = inner[:5] - 0.02 * _NEAR
    depth = min(0.06, gap * 0.6) * np.array([0.1, 0.85, 1.0, 0.85, 0.1])
    teeth = np.concatenate([edge - 0.03 * _DOWN, (edge + depth[:, None] * _DOWN)[::-1]])
    brushes.fill(drawn, view.at(teeth) - corner, _TEETH)
    brushes.blend_copy(window, drawn, mask)
    brushes.stroke(layer, rim, shade(view.identity.lip, 0.6), 0.008 * view.unit, closed=True)


def beard_mask(shape: tuple[int, int], view: HeadView) -> Pixels | None:
    """Where the beard grows, (h, w) uint8 with a soft edge; None without one. It may stand a little over the jaw."""
    kind, p = view.identity.beard, view.landmarks
    if kind == "none":
        return None
    mask = np.zeros(shape, np.uint8)
    nose_y = p[33, 1]
    moustache = [
        p[48] + (-0.03, 0.0, 0),
        (-0.16, nose_y + 0.075, 0.62),
        (0.0, nose_y + 0.06, 0.70),
        (0.16, nose_y + 0.075, 0.62),
        p[54] + (0.03, 0.0, 0),
        p[54] + (0.035, 0.05, 0),
        p[53],
        p[51],
        p[49],
        p[48] + (-0.035, 0.05, 0),
    ]
    brushes.fill(mask, view.curve(np.array(moustache), closed=True), 255)
    if kind == "goatee":
        chin = [
            p[48] + (-0.03, 0, 0),
            p[48] + (-0.04, 0.12, 0),
            p[7] * (1, 0.97, 1),
            p[8] + (0, 0.03, 0),
            p[9] * (1, 0.97, 1),
            p[54] + (0.04, 0.12, 0),
            p[54] + (0.03, 0, 0),
            p[55],
            p[57] + (0, 0.02, 0),
            p[59],
        ]
        brushes.fill(mask, view.curve(np.array(chin), closed=True), 255)
    if kind == "full":
        swell = np.sin(np.linspace(0, np.pi, 15))[:, None]
        jaw = p[1:16] * (1.03, 1, 1) + (0.03 * _DOWN) * swell
        cheeks = [
            p[15] + (-0.05, 0.0, 0.06),
            p[13] + (-0.13, -0.02, 0.1),
            p[54] + (0.06, -0.03, 0),
            p[54] + (0.02, 0.04, 0),
            p[56],
            p[57] + (0, 0.012, 0),
            p[58],
            p[48] + (-0.02, 0.04, 0),
            p[48] + (-0.06, -0.03, 0),
            p[3] + (0.13, -0.02, 0.1),
            p[1] + (0.05, 0, 0.06),
        ]
        whole = np.zeros(shape, np.uint8)
        brushes.fill(whole, np.concatenate([view.curve(jaw), view.curve(np.array(cheeks))]), 255)
        mask = np.maximum(mask, whole)
    return np.asarray(cv2.GaussianBlur(mask, (0, 0), max(0.014 * view.unit, 0.3)), np.uint8)


def paint_glasses(canvas: Pixels, view: HeadView, colour: Colour) -> None:
    """Round glasses; an arm is seen on the side that is turned to the viewer."""
    pen = 0.032 * view.unit
    middles = [view.landmarks[first : first + 6].mean(axis=0) + 0.015 * _DOWN + 0.07 * _NEAR for first in (36, 42)]
    for middle, side in zip(middles, (-1.0, 1.0), strict=True):
        rim = view.ring(middle, (0.185, 0.165), 24)
        brushes.soft_fill(canvas, rim, (255, 255, 255), 0.10, 0.3)
        brushes.stroke(canvas, rim, colour, pen, closed=True)
        if side * view.state.yaw <= 4:
            hinge, ear = (
                middle + 0.18 * side * _RIGHT - 0.03 * _DOWN,
                (side * 0.63 * view.identity.face_width, -0.10, 0.0),
            )
            brushes.stroke(canvas, view.at(np.array([hinge, ear])), colour, pen)
    left, right = middles
    bridge = (
        np.array([left + 0.18 * _RIGHT, 0.72 * _NEAR + (left[1] - 0.02) * _DOWN, right - 0.18 * _RIGHT]) - 0.03 * _DOWN
    )
    brushes.stroke(canvas, view.curve(bridge), colour, pen)
