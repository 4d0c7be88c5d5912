"""Paints a posed head: skin, features, beard, then light, then hair. Back to front, on an RGB canvas.

Everything is placed in view coordinates (:mod:`~ostinato.faces.drawn.face_model`) and mapped to pixels by one affine matrix, so a
picture drawn straight into an aligned crop is as sharp as one drawn into a frame.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.faces.drawn import brushes
from ostinato.faces.drawn.brushes import Curve, Pixels
from ostinato.faces.drawn.face_model import SKULL_CENTRE, PosedHead, Points, pose_head
from ostinato.faces.drawn.hair import HAIR_SHAPES, curl_points, hair_shell
from ostinato.faces.drawn.identity import Colour, DrawnIdentity
from ostinato.faces.drawn.shading import Ellipsoid, light_vector, smoothstep
from ostinato.faces.drawn.state import FaceState

_WHITE: Colour = (250, 248, 244)


def paint_background(canvas: Pixels, state: FaceState, to_pixels: NDArray[Any]) -> None:
    """Fill ``canvas`` in place with the background of ``state``.

    :param to_pixels: (2, 3) matrix from frame pixels to canvas pixels, so that a crop shows the part it covers.
    """
    height, width = canvas.shape[:2]
    back = cv2.invertAffineTransform(to_pixels)
    frame_height, frame_width = state.frame_size
    # The colour runs from the upper to the lower edge of the frame with a lean to one side.
    slope = back[1] / frame_height + 0.25 * (back[0] / frame_width - np.array([0, 0, 0.5]))
    along = (
        np.arange(width, dtype=np.float32) * np.float32(slope[0])
        + (np.arange(height, dtype=np.float32) * np.float32(slope[1]) + np.float32(slope[2]))[:, None]
    )
    along = np.clip(along, 0, 1)[..., None]
    upper, lower = (np.asarray(c, np.float32) for c in state.background)
    canvas[:] = np.rint(upper + (lower - upper) * along).astype(np.uint8)
    size = float(np.sqrt(abs(np.linalg.det(to_pixels[:, :2]))))
    for fx, fy, radius, towards in ((0.14, 0.22, 0.17, 255), (0.87, 0.3, 0.22, 255), (0.8, 0.86, 0.2, 90)):
        middle = np.array([fx * frame_width, fy * frame_height, 1.0])
        level = min(max(fy + 0.25 * (fx - 0.5), 0.0), 1.0)
        base = upper + (lower - upper) * level
        r, g, b = (int(v) for v in np.rint(base + (towards - base) * 0.13))
        brushes.disc(canvas, to_pixels @ middle, radius * frame_height * size, (r, g, b))


class HeadPainter:
    """Paints one person in one state.

    :param to_pixels: (2, 3) matrix from frame pixels to canvas pixels.
    """

    def __init__(self, identity: DrawnIdentity, state: FaceState, to_pixels: NDArray[Any]) -> None:
        self.identity = identity
        self.state = state
        self.head: PosedHead = pose_head(identity, state)
        placement = np.array([[state.scale, 0, state.centre[0]], [0, state.scale, state.centre[1]], [0, 0, 1]])
        self._matrix = np.asarray(to_pixels, dtype=float) @ placement
        self.unit = float(np.sqrt(abs(np.linalg.det(self._matrix[:, :2]))))
        """Canvas pixels per face unit."""
        self.light = light_vector(state.light_azimuth, state.light_elevation)
        self._landmarks = self._pixels(self.head.view[:, :2])

    def paint(self, canvas: Pixels) -> Pixels:
        """Paint the person over ``canvas`` in place; returns the mask of the visible face (skin that hair leaves free)."""
        shape = HAIR_SHAPES[self.identity.hair_style]
        face = np.zeros(canvas.shape[:2], np.uint8)
        brushes.fill(face, self._outline(), 255)
        if shape.behind:
            self._hair_behind(canvas, shape.behind)
        self._body(canvas)
        far = self.state.yaw > 0  # turned to the right: the ear on the image's right is the far one
        self._ear(canvas, right=far)
        if abs(self.state.yaw) < 8:
            self._ear(canvas, right=not far)
        brushes.blend(canvas, face, self.identity.skin)
        self._cheeks(canvas)
        self._nose(canvas)
        self._eyes(canvas)
        self._beard(canvas, face)
        self._mouth(canvas)
        self._brows(canvas)
        self._light_face(canvas, face)
        if abs(self.state.yaw) >= 8:
            self._ear(canvas, right=not far)
        hair = self._hair(canvas)
        if self.identity.glasses is not None:
            self._glasses(canvas, self.identity.glasses)
        return np.minimum(face, 255 - hair)

    # --- places ------------------------------------------------------------------------------------------------------

    def _pixels(self, view: Points) -> Curve:
        return view @ self._matrix[:, :2].T + self._matrix[:, 2]

    def _at(self, local: Points) -> Curve:
        """Pixels of points given in head coordinates."""
        return self._pixels(self.head.project(np.asarray(local, dtype=float)))

    def _ellipsoid(self, centre: Points, radii: Points) -> Ellipsoid:
        return Ellipsoid(centre, radii, self.head.rotation, self._matrix)

    def _outline(self) -> Curve:
        """The silhouette of skull and jaw: the hull of both, since a head is nearly convex."""
        skull = self._ellipsoid(SKULL_CENTRE, self.head.skull_radii).silhouette()
        jaw = self._pixels(brushes.smooth(self.head.view[:17, :2], closed=False))
        hull = cv2.convexHull(np.concatenate([skull, jaw]).astype(np.float32))
        return np.asarray(hull[:, 0], dtype=float)

    def _shade(self, colour: Colour, factor: float) -> Colour:
        r, g, b = (min(255, max(0, round(c * factor))) for c in colour)
        return r, g, b

    # --- body ----------------------------------------------------------------------------------------------------------

    def _body(self, canvas: Pixels) -> None:
        """Neck and shoulders follow the head's turn a little; they stay upright in the view but for half the roll."""
        skin = self._shade(self.identity.skin, 0.80 - 0.12 * self.state.light_strength)
        roll = np.radians(self.state.roll * 0.35)
        turn = np.array([[np.cos(roll), -np.sin(roll)], [np.sin(roll), np.cos(roll)]])
        base = self.head.project(np.array([[0.0, 0.45, -0.12]]))[0]

        def place(points: list[tuple[float, float]]) -> Curve:
            return self._pixels(np.asarray(points) @ turn.T + base)

        wide = 0.34 + 0.04 * self.identity.jaw_squareness
        shoulders = [(-2.6, 3.0), (-1.45, 1.15), (-1.1, 0.92), (-0.42, 0.72), (0, 0.86), (0.42, 0.72), (1.1, 0.92), (1.45, 1.15), (2.6, 3.0)]  # fmt: skip
        shirt = self._shade(self.identity.shirt, 0.95)
        brushes.fill(canvas, brushes.smooth(place(shoulders), closed=False), shirt)
        collar = [(-0.5, 0.68), (-0.3, 0.86), (0, 0.95), (0.3, 0.86), (0.5, 0.68), (0.38, 0.6), (0, 0.72), (-0.38, 0.6)]
        brushes.fill(canvas, brushes.smooth(place(collar), closed=True), self._shade(self.identity.shirt, 0.78))
        neck = [(-wide, -0.3), (-wide + 0.02, 0.4), (-wide - 0.1, 0.7), (0, 0.88), (wide + 0.1, 0.7), (wide - 0.02, 0.4), (wide, -0.3)]  # fmt: skip
        brushes.fill(canvas, brushes.smooth(place(neck), closed=False), skin)
        # The chin's shadow on the neck.
        shadow = self._pixels(self.head.view[3:14, :2] + np.array([0.0, 0.09]))
        neck_only = brushes.clipped_copy(canvas, brushes.smooth(place(neck), closed=False))
        if neck_only is not None:
            window, drawn, mask, corner = neck_only
            brushes.soft_fill(drawn, shadow - corner, self._shade(skin, 0.66), 0.8, 0.04 * self.unit)
            brushes.blend_copy(window, drawn, mask)

    def _ear(self, canvas: Pixels, *, right: bool) -> None:
        if not HAIR_SHAPES[self.identity.hair_style].ears:
            return
        side = 1.0 if right else -1.0
        size = self.identity.ear_size
        x = side * 0.60 * self.identity.face_width
        shape = np.array(
            [
                (0.0, -0.16, 0.02),
                (0.07, -0.22, -0.06),
                (0.11, -0.13, -0.12),
                (0.095, 0.0, -0.12),
                (0.05, 0.11, -0.05),
                (0.0, 0.13, 0.03),
            ]  # fmt: skip
        )
        shape = shape * np.array([side * size, size, size]) + np.array([x, -0.04, -0.02])
        skin = self.identity.skin
        lit = 0.92 + 0.14 * self.state.light_strength * side * float(self.light[0])
        brushes.fill(canvas, brushes.smooth(self._at(shape), closed=True), self._shade(skin, lit * 0.94))
        inner = shape.mean(axis=0) + (shape - shape.mean(axis=0)) * 0.55
        brushes.fill(canvas, brushes.smooth(self._at(inner), closed=True), self._shade(skin, lit * 0.8))

    # --- features --------------------------------------------------------------------------------------------------------

    def _cheeks(self, canvas: Pixels) -> None:
        skin = np.asarray(self.identity.skin, float)
        r, g, b = (int(v) for v in np.clip(skin * (1.0, 0.78, 0.76) + (8, 0, 0), 0, 255))
        lift = 0.03 * max(self.state.smile, 0)
        for side in (-1.0, 1.0):
            centre = np.array([side * 0.36 * self.identity.face_width, 0.27 - lift, 0.50])
            shape = self._at(centre + _circle(0.12)[:, [0, 1, 2]] * (1, 0.75, 0))
            brushes.soft_fill(canvas, shape, (r, g, b), 0.5, 0.05 * self.unit)
        if self.identity.freckles:
            rng = np.random.default_rng((0xF4EC, self.identity.detail_seed))
            dot = self._shade(self.identity.skin, 0.78)
            for _ in range(self.identity.freckles):
                x, y = rng.uniform(-0.40, 0.40), rng.normal(0.2, 0.07)
                place = self._at(np.array([[x, y, 0.66 - 0.9 * x * x]]))
                brushes.soft_fill(canvas, place + _circle(0.011)[:, :2] * self.unit, dot, 0.75, 0.004 * self.unit)

    def _nose(self, canvas: Pixels) -> None:
        local = self.head.local
        skin = self.identity.skin
        shadow, lit = self._shade(skin, 0.80), self._shade(skin, 1.10)
        # The side of the bridge that turns away from the light lies in shadow; head-on light shades both a little.
        towards = float((self.head.rotation.T @ self.light)[0])
        width = 0.085 * self.identity.nose_width
        for side in (-1.0, 1.0):
            amount = 0.22 + 0.55 * self.state.light_strength * max(0.0, -side * towards)
            flank = np.array([local[27] + (side * 0.03, -0.05, -0.04), local[28], local[30], local[33] + (0, -0.01, 0.02),
                              local[33] + (side * width * 1.3, -0.02, -0.06), local[29] + (side * width * 0.85, 0, -0.13)])  # fmt: skip
            brushes.soft_fill(canvas, self._at(flank), shadow, amount, 0.018 * self.unit)
        tip = self._at(local[30] + np.array([0, 0.005, 0]) + _circle(0.045) * (1, 0.8, 0))
        brushes.soft_fill(canvas, tip, lit, 0.75, 0.022 * self.unit)
        bridge = self._at(np.array([local[27], local[28] + (0.015, 0, 0), local[29] + (0.02, 0, 0), local[29] - (0.02, 0, 0), local[28] - (0.015, 0, 0)]))  # fmt: skip
        brushes.soft_fill(canvas, bridge, lit, 0.45, 0.016 * self.unit)
        line = self._shade(skin, 0.60)
        wings = local[31:36].copy()
        wings[[0, 4], 0] *= 1.12
        base = np.concatenate([[wings[0] + (-0.012, -0.055, -0.02)], wings, [wings[4] + (0.012, -0.055, -0.02)]])
        curve = brushes.smooth(self._at(base), closed=False)
        widths = np.interp(np.linspace(0, 1, len(curve)), [0, 0.15, 0.5, 0.85, 1], [0.004, 0.02, 0.014, 0.02, 0.004])
        brushes.tapered(canvas, curve, widths * self.unit, line)
        for point in (32, 34):
            hole = self._at(
                local[point] + np.array([np.sign(local[point, 0]) * 0.008, -0.008, 0]) + _circle(0.022) * (1.25, 0.6, 0)
            )
            brushes.soft_fill(canvas, hole, self._shade(skin, 0.42), 0.85, 0.004 * self.unit)

    def _eyes(self, canvas: Pixels) -> None:
        for first, brow_side in ((36, -1.0), (42, 1.0)):
            self._eye(canvas, self.head.local[first : first + 6], brow_side)

    def _eye(self, canvas: Pixels, lids: Points, side: float) -> None:
        skin, unit = self.identity.skin, self.unit
        middle = lids.mean(axis=0)
        width = float(np.ptp(lids[:, 0]))
        rim = brushes.smooth(self._at(lids), closed=True, steps=6)
        socket = self._at(middle + np.array([0, -0.035, -0.01]) + _circle(0.5) * (width * 1.25, width * 0.85, 0))
        brushes.soft_fill(canvas, socket, self._shade(skin, 0.84), 0.55, 0.03 * unit)
        # The painted lid sits above the opening: its crease is a thin line that rides on the upper lid.
        if (opened := brushes.clipped_copy(canvas, rim)) is not None:
            window, drawn, mask, corner = opened
            drawn[:] = self._shade(_WHITE, 0.97)
            gaze = np.array([self.state.gaze[0] * width * 0.17, self.state.gaze[1] * 0.028, 0.0])
            lid_height = float(self.identity.eye_height) * 0.062
            iris = self._at((middle + gaze + (0, -0.004, 0))[None])[0] - corner
            radius = max(0.078, lid_height * 0.78) * self.identity.eye_width * unit
            brushes.disc(drawn, iris, radius, self._shade(self.identity.eye, 0.55))
            brushes.disc(drawn, iris, radius * 0.86, self.identity.eye)
            brushes.disc(drawn, iris + (0, radius * 0.3), radius * 0.52, self._shade(self.identity.eye, 1.3))
            brushes.disc(drawn, iris, radius * 0.48, (16, 14, 16))
            glint = np.array([np.sign(self.light[0]) or 1.0, -1.0]) * radius * 0.36
            brushes.disc(drawn, iris + glint, radius * 0.24, (255, 255, 255))
            brushes.disc(drawn, iris - glint * 0.8, radius * 0.1, (235, 235, 240))
            upper_shadow = self._at(lids[:4] + np.array([0, 0.012, 0])) - corner
            brushes.soft_fill(
                drawn,
                np.concatenate([upper_shadow, (upper_shadow - (0, 0.1 * unit))[::-1]]),
                (96, 84, 92),
                0.45,
                0.012 * unit,
            )
            brushes.blend_copy(window, drawn, mask)
        lash_line = self._shade(skin, 0.28)
        upper = lids[:4] if side < 0 else lids[3::-1]
        if side > 0:
            upper = lids[[3, 2, 1, 0]]
        # ``upper`` runs from the outer corner to the inner one.
        wing = upper[0] + np.array([side * 0.022, -0.014 * self.identity.lashes - 0.004, -0.02])
        curve = brushes.smooth(self._at(np.concatenate([[wing], upper])), closed=False, steps=6)
        heavy = 0.024 + 0.018 * self.identity.lashes
        widths = np.interp(np.linspace(0, 1, len(curve)), [0, 0.25, 0.6, 1], [0.006, heavy, heavy * 0.85, 0.012])
        brushes.tapered(canvas, curve, widths * unit, lash_line)
        crease = upper + np.array([0, -0.036, 0.0]) - np.array([0, 0.01, 0]) * np.array([0, 1, 1, 0])[:, None]
        brushes.stroke(canvas, brushes.smooth(self._at(crease), closed=False), self._shade(skin, 0.66), 0.011 * unit)
        lower = lids[[3, 4, 5, 0]]
        brushes.stroke(canvas, brushes.smooth(self._at(lower), closed=False), self._shade(skin, 0.62), 0.009 * unit)

    def _brows(self, canvas: Pixels) -> None:
        thick = 0.052 * self.identity.brow_thickness
        for points, taper in (
            (self.head.local[17:22], (0.12, 0.65, 0.95, 1.0, 0.8)),
            (self.head.local[22:27], (0.8, 1.0, 0.95, 0.65, 0.12)),
        ):
            curve = brushes.smooth(self._at(points), closed=False)
            widths = np.interp(np.linspace(0, 4, len(curve)), range(5), taper) * thick
            brushes.tapered(canvas, curve, widths * self.unit, self.identity.brow)

    def _mouth(self, canvas: Pixels) -> None:
        local, unit = self.head.local, self.unit
        lip = self.identity.lip
        outer = brushes.smooth(self._at(local[48:60]), closed=True)
        inner_points = self._at(local[60:68])
        inner = brushes.smooth(inner_points, closed=True)
        brushes.soft_fill(canvas, outer + (0, 0.035 * unit), self._shade(self.identity.skin, 0.8), 0.4, 0.025 * unit)
        brushes.fill(canvas, outer, lip)
        upper = self._at(np.concatenate([local[48:55], local[[64, 63, 62, 61, 60]]]))
        brushes.fill(canvas, upper, self._shade(lip, 0.84))
        shine = self._at(local[[58, 57, 56]] + np.array([0, -0.028, 0.01]))
        brushes.soft_fill(
            canvas, np.concatenate([shine, shine[::-1] - (0, 0.02 * unit)]), self._shade(lip, 1.25), 0.7, 0.012 * unit
        )
        gap = float(local[66, 1] - local[62, 1])
        if gap > 0.02 and (opened := brushes.clipped_copy(canvas, inner)) is not None:
            window, drawn, mask, corner = opened
            drawn[:] = (74, 26, 30)
            tongue = self._at(local[66] + np.array([0, 0.015, -0.05]) + _circle(0.5) * (0.24, 0.09, 0)) - corner
            brushes.fill(drawn, tongue, (188, 84, 86))
            # Teeth hang from the upper jaw, whatever the lips do.
            depth = min(0.062, gap * 0.55)
            line = local[[60, 61, 62, 63, 64]] * (1, 1, 1) - np.array([0, 0, 0.02])
            teeth = np.concatenate([line - (0, 0.03, 0), (line + (0, depth, 0))[::-1]])
            brushes.fill(drawn, brushes.smooth(self._at(teeth) - corner, closed=True), (244, 240, 232))
            brushes.blend_copy(window, drawn, mask)
            brushes.stroke(canvas, inner, self._shade(lip, 0.55), 0.008 * unit, closed=True)
        else:
            curve = brushes.smooth(
                self._at((local[[60, 61, 62, 63, 64]] + local[[60, 67, 66, 65, 64]]) / 2), closed=False
            )
            widths = np.interp(np.linspace(0, 1, len(curve)), [0, 0.2, 0.8, 1], [0.012, 0.02, 0.02, 0.012])
            brushes.tapered(canvas, curve, widths * unit, self._shade(lip, 0.42))
        for corner_point in (48, 54):
            place = self._at(local[corner_point] + _circle(0.016))
            brushes.soft_fill(canvas, place, self._shade(self.identity.skin, 0.6), 0.7, 0.01 * unit)

    def _beard(self, canvas: Pixels, face: Pixels) -> None:
        kind = self.identity.beard
        if kind == "none":
            return
        local, unit = self.head.local, self.unit
        mask = np.zeros(canvas.shape[:2], np.uint8)
        colour = self._shade(self.identity.brow, 1.08)
        nose_y = local[33, 1]
        if kind in ("moustache", "full", "goatee"):
            top = [(local[48] + local[31] * (0, 0, 0)) + (-0.03, 0.0, 0), (-0.16, nose_y + 0.075, 0.62), (0.0, nose_y + 0.06, 0.70),
                   (0.16, nose_y + 0.075, 0.62), local[54] + (0.03, 0.0, 0)]  # fmt: skip
            bottom = [local[54] + (0.035, 0.05, 0), local[53], local[51], local[49], local[48] + (-0.035, 0.05, 0)]
            brushes.fill(mask, brushes.smooth(self._at(np.array([*top, *bottom])), closed=True, steps=4), 255)
        if kind == "goatee":
            chin = [local[48] + (-0.03, 0, 0), local[48] + (-0.04, 0.12, 0), local[7] * (1, 0.97, 1), local[8] + (0, 0.03, 0), local[9] * (1, 0.97, 1),
                    local[54] + (0.04, 0.12, 0), local[54] + (0.03, 0, 0), local[55], local[57] + (0, 0.02, 0), local[59]]  # fmt: skip
            brushes.fill(mask, brushes.smooth(self._at(np.array(chin)), closed=True, steps=4), 255)
        if kind == "full":
            jaw = local[1:16] * (1.03, 1, 1) + np.array([0, 0.03, 0]) * np.sin(np.linspace(0, np.pi, 15))[:, None]
            cheek = np.array([local[15] + (-0.05, 0.0, 0.06), local[13] + (-0.13, -0.02, 0.1), local[54] + (0.06, -0.03, 0), local[54] + (0.02, 0.04, 0), local[56], local[57] + (0, 0.012, 0), local[58],
                              local[48] + (-0.02, 0.04, 0), local[48] + (-0.06, -0.03, 0), local[3] + (0.13, -0.02, 0.1), local[1] + (0.05, 0, 0.06)])  # fmt: skip
            shape = np.concatenate(
                [brushes.smooth(self._at(jaw), closed=False), brushes.smooth(self._at(cheek), closed=False)]
            )
            beard = np.zeros_like(mask)
            brushes.fill(beard, shape, 255)
            mask = np.maximum(mask, beard)
        # A beard ends softly on the cheeks and may stand a little over the jaw.
        soft = np.asarray(cv2.GaussianBlur(mask, (0, 0), max(0.014 * unit, 0.3)), dtype=np.uint8)
        brushes.blend(canvas, soft, colour, 0.94)
        np.maximum(face, mask, out=face)

    def _glasses(self, canvas: Pixels, colour: Colour) -> None:
        local, pen = self.head.local, 0.032 * self.unit
        rims = []
        for first in (36, 42):
            middle = local[first : first + 6].mean(axis=0) + (0, 0.015, 0.07)
            rim = self._at(middle + _circle(1.0, 24) * (0.185, 0.155, 0))
            rims.append(middle)
            brushes.soft_fill(canvas, rim, (255, 255, 255), 0.10, 0.3)
            brushes.stroke(canvas, rim, colour, pen, closed=True)
        bridge = np.array([rims[0] + (0.18, -0.03, 0), (0, rims[0][1] - 0.05, 0.72), rims[1] + (-0.18, -0.03, 0)])
        brushes.stroke(canvas, brushes.smooth(self._at(bridge), closed=False), colour, pen)
        for middle, side in zip(rims, (-1.0, 1.0), strict=True):
            if side * self.state.yaw <= 4:
                arm = np.array([middle + (side * 0.18, -0.03, 0), (side * 0.63 * self.identity.face_width, -0.10, 0.0)])
                brushes.stroke(canvas, self._at(arm), colour, pen)

    # --- light -----------------------------------------------------------------------------------------------------------

    def _light_face(self, canvas: Pixels, face: Pixels) -> None:
        """Multiply the face by the light that falls on an ellipsoid around head and jaw."""
        body = self._ellipsoid(np.array([0.0, 0.06, -0.04]), self.head.skull_radii * (1.06, 1.32, 1.05))
        window = body.window(canvas.shape[0], canvas.shape[1])
        if window is None:
            return
        surface = body.surface(window)
        lit = smoothstep(-0.25, 0.85, surface.facing(self.light))
        strength = self.state.light_strength
        tint = np.asarray(self.state.light_colour, np.float32)
        high = (1.0 + 0.10 * strength) * tint
        low = np.array([1 - 0.50 * strength, 1 - 0.56 * strength, 1 - 0.50 * strength], np.float32)
        field = low + (high - low) * lit[..., None]
        # Skin darkens towards its outline, which lifts the head off the background.
        field *= (0.84 + 0.16 * smoothstep(0.0, 0.75, surface.towards_viewer()))[..., None]
        view = canvas[window]
        alpha = face[window].astype(np.float32)[..., None] / 255
        view[:] = np.clip(np.rint(view * (1 + (field - 1) * alpha)), 0, 255).astype(np.uint8)

    # --- hair ------------------------------------------------------------------------------------------------------------

    def _hair_behind(self, canvas: Pixels, kind: str) -> None:
        volume = self.identity.hair_volume
        wide = 0.70 * self.identity.face_width + 0.05 * volume
        if kind == "long":
            shape = [(-0.5, -0.7), (-wide, -0.2), (-wide - 0.04, 0.4), (-wide - 0.02, 1.0), (-0.62, 1.55), (0, 1.6),
                     (0.62, 1.55), (wide + 0.02, 1.0), (wide + 0.04, 0.4), (wide, -0.2), (0.5, -0.7)]  # fmt: skip
        else:
            shape = [(-0.5, -0.7), (-wide, -0.2), (-wide - 0.06, 0.3), (-wide - 0.03, 0.72), (-0.45, 0.86), (0, 0.84),
                     (0.45, 0.86), (wide + 0.03, 0.72), (wide + 0.06, 0.3), (wide, -0.2), (0.5, -0.7)]  # fmt: skip
        local = np.array([(x, y, -0.22) for x, y in shape])
        brushes.fill(canvas, brushes.smooth(self._at(local), closed=True), self._shade(self.identity.hair, 0.62))

    def _hair(self, canvas: Pixels) -> Pixels:
        """Paint the hair in front; returns its mask."""
        identity, unit = self.identity, self.unit
        shape = HAIR_SHAPES[identity.hair_style]
        mask = np.zeros(canvas.shape[:2], np.uint8)
        if shape.shell == 0:
            return mask
        grow = 1 + (shape.shell - 1) * identity.hair_volume
        radii = self.head.skull_radii * np.array([grow, 1 + (grow - 1) * 1.15, grow])
        shell = self._ellipsoid(SKULL_CENTRE + np.array([0, -0.01, 0]), radii)
        if shape.bun:
            bun = self._at(np.array([0, -0.93, -0.22]) + _circle(0.24) * (1, 0.85, 0))
            brushes.fill(canvas, bun, self._shade(identity.hair, 0.86))
            brushes.fill(mask, bun, 255)
            inner = self._at(np.array([-0.05, -0.97, -0.1]) + _circle(0.13) * (1, 0.8, 0))
            brushes.soft_fill(canvas, inner, self._shade(identity.hair, 1.2), 0.6, 0.03 * unit)
        for side in (-1.0, 1.0):
            if shape.locks:
                end = shape.locks
                lock = np.array([(side * 0.50, -0.52, 0.30), (side * 0.66, -0.3, 0.0), (side * 0.74, 0.1, -0.08), (side * 0.73, end * 0.75, -0.08), (side * 0.60, end, -0.02),
                                 (side * 0.50, end * 0.98, 0.1), (side * 0.565, end * 0.6, 0.14), (side * 0.58, 0.1, 0.12), (side * 0.56, -0.2, 0.24)])  # fmt: skip
                lock[:, 0] *= identity.face_width
                brushes.fill(mask, brushes.smooth(self._at(lock), closed=True), 255)
        window = shell.window(canvas.shape[0], canvas.shape[1], margin=0.2 if not shape.locks else 0.9)
        if window is None:
            return mask
        surface = shell.surface(window)
        cover, strands = hair_shell(surface, shape, identity)
        mask[window] = np.maximum(mask[window], np.rint(cover * 255).astype(np.uint8))
        strength = self.state.light_strength
        lit = smoothstep(-0.5, 0.9, surface.facing(self.light))
        gloss = np.exp(-(((surface.facing(_halfway(self.light)) - 0.86) / 0.08) ** 2)) * shape.gloss
        tone = (1 - 0.42 * strength) + (0.42 * strength + 0.12) * lit + strands
        hair = np.asarray(identity.hair, np.float32)
        colour = hair * tone[..., None] + (30 + 0.38 * hair) * (gloss * (0.4 + 0.6 * lit))[..., None]
        view = canvas[window].astype(np.float32)
        alpha = mask[window].astype(np.float32)[..., None] * (shape.opacity / 255)
        canvas[window] = np.clip(np.rint(view + (colour - view) * alpha), 0, 255).astype(np.uint8)
        if shape.curls:
            self._curls(canvas, mask, radii)
        return mask

    def _curls(self, canvas: Pixels, mask: Pixels, radii: Points) -> None:
        """Round curls over the shell, from back to front, each lit on the side of the light."""
        shape = HAIR_SHAPES[self.identity.hair_style]
        directions, sizes, tones = curl_points(self.identity, shape)
        local = SKULL_CENTRE + directions * radii
        view = local @ self.head.rotation.T
        facing = directions @ self.head.rotation.T
        places = self._pixels(view[:, :2])
        shift = np.array([self.light[0], self.light[1]]) * 0.3
        for index in np.argsort(view[:, 2]):
            if facing[index, 2] < -0.45:
                continue
            radius = float(sizes[index]) * self.unit
            tone = float(tones[index]) * (0.72 + 0.34 * max(0.0, float(facing[index] @ self.light)))
            base = self.identity.hair
            brushes.disc(canvas, places[index], radius, self._shade(base, tone * 0.8))
            glow = self._shade((base[0] + 10, base[1] + 8, base[2] + 8), tone * 1.16)
            brushes.disc(canvas, places[index] + shift * radius, radius * 0.62, glow)
            brushes.disc(mask, places[index], radius, 255)


def _circle(radius: float, count: int = 16) -> Points:
    angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
    return radius * np.stack([np.cos(angle), np.sin(angle), np.zeros(count)], axis=1)


def _halfway(light: Points) -> Points:
    half = light + np.array([0.0, 0.0, 1.0])
    return half / np.linalg.norm(half)
