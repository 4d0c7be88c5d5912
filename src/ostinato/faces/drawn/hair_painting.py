"""Paints hair: what hangs behind the head, and what covers it."""

from __future__ import annotations

import numpy as np

from ostinato.faces.drawn import brushes
from ostinato.faces.drawn.brushes import Pixels
from ostinato.faces.drawn.face_model import SKULL_CENTRE, Points
from ostinato.faces.drawn.hair import HAIR_SHAPES, HairShape, curl_points, hair_cover, hair_strands
from ostinato.faces.drawn.head_view import HeadView
from ostinato.faces.drawn.identity import shade
from ostinato.faces.drawn.shading import Ellipsoid, Field, Surface, smoothstep

# Right halves of the hair behind the head: x relative to its width, y in head coordinates, from the crown down.
_BEHIND = {
    "bob": ((0.5, -0.7), (1.0, -0.2), (1.06, 0.3), (1.03, 0.72), (0.62, 0.86), (0.0, 0.84)),
    "long": ((0.5, -0.7), (1.0, -0.2), (1.04, 0.4), (1.02, 1.0), (0.86, 1.55), (0.0, 1.6)),
}
_BEHIND_DEPTH = -0.22
_FAR_TURN = 10.0  # degrees of yaw from which the far side's locks hang behind the face


def paint_hair_behind(canvas: Pixels, view: HeadView) -> None:
    """Paint what the head hides part of, in place, before the head."""
    shape = HAIR_SHAPES[view.identity.hair_style]
    hair = view.identity.hair
    if shape.behind == "cloud":
        cloud = view.ring(np.array([0, -0.30, -0.15]), (0.84 * view.identity.face_width, 0.78), 24)
        brushes.fill(canvas, cloud, shade(hair, 0.6))
    elif shape.behind:
        wide = 0.70 * view.identity.face_width + 0.05 * view.identity.hair_volume
        half = np.array([(x * wide, y, _BEHIND_DEPTH) for x, y in _BEHIND[shape.behind]])
        whole = np.concatenate([half, half[-2::-1] * (-1, 1, 1)])
        brushes.fill(canvas, view.curve(whole, closed=True), shade(hair, 0.62))
    if shape.locks:
        # The hair of the far side, where the skull hides none of it.
        brushes.fill(canvas, _shell(view, shape).silhouette(), shade(hair, 0.66))
    for side in (-1.0, 1.0):
        if shape.locks and not _is_near(view, side):
            brushes.fill(canvas, view.curve(_lock(view, side, shape.locks), closed=True), shade(hair, 0.72))
    if shape.bun:
        brushes.fill(canvas, view.ring(np.array([0, -0.93, -0.22]), (0.24, 0.204)), shade(hair, 0.86))
        brushes.soft_fill(
            canvas, view.ring(np.array([-0.05, -0.97, -0.1]), (0.13, 0.1)), shade(hair, 1.2), 0.6, 0.03 * view.unit
        )


def paint_hair(canvas: Pixels, view: HeadView) -> Pixels:
    """Paint the hair in front of the head in place; returns its mask, (h, w) uint8."""
    identity = view.identity
    shape = HAIR_SHAPES[identity.hair_style]
    mask = np.zeros(canvas.shape[:2], np.uint8)
    if not shape.shell:
        return mask
    shell = _shell(view, shape)
    window = shell.window(canvas.shape[0], canvas.shape[1], margin=0.9 if shape.locks else 0.05)
    if window is None:
        return mask
    for side in (-1.0, 1.0):
        if shape.locks and _is_near(view, side):
            brushes.fill(mask, view.curve(_lock(view, side, shape.locks), closed=True), 255)
    surface = shell.surface(window)
    covered = mask[window]
    on_shell = surface.coverage > 0
    cover = hair_cover(surface.where(on_shell), shape, identity, view.state.yaw)
    covered[on_shell] = np.maximum(covered[on_shell], np.rint(cover * 255).astype(np.uint8))
    hairy = covered > 0
    colour = _lit_hair(surface.where(hairy), view, shape)
    picture = canvas[window]
    below = picture[hairy].astype(np.float32)
    alpha = covered[hairy][:, None] * np.float32(shape.opacity / 255)
    picture[hairy] = np.clip(np.rint(below + (colour - below) * alpha), 0, 255).astype(np.uint8)
    if shape.curls:
        _paint_curls(canvas, mask, view, shape)
    return mask


def _shell(view: HeadView, shape: HairShape) -> Ellipsoid:
    return view.ellipsoid(SKULL_CENTRE + np.array([0, -0.01, 0]), _shell_radii(view, shape))


def _shell_radii(view: HeadView, shape: HairShape) -> Points:
    """Radii of the hair's outer surface; it stands off a little more at the crown."""
    grow = 1 + (shape.shell - 1) * view.identity.hair_volume
    return view.head.skull_radii * np.array([grow, 1 + (grow - 1) * 1.15, grow])


def _lit_hair(surface: Surface, view: HeadView, shape: HairShape) -> Field:
    """(n, 3) colours, 0 to 255 and beyond: light, strands, and a gleam halfway between light and viewer."""
    hair, strength = np.asarray(view.identity.hair, np.float32), view.state.light_strength
    lit = smoothstep(-0.5, 0.9, surface.facing(view.light))
    tone = np.float32(1 - 0.42 * strength) + np.float32(0.42 * strength + 0.10) * lit
    tone = tone + hair_strands(surface, shape, view.identity)
    colour = hair * tone[:, None]
    if shape.gloss:
        half = view.light + np.array([0.0, 0.0, 1.0])
        off = (surface.facing(half / np.linalg.norm(half)) - np.float32(0.86)) / np.float32(0.08)
        gleam = np.exp(-off * off) * (np.float32(0.4) + np.float32(0.6) * lit) * np.float32(shape.gloss)
        colour += (26 + np.float32(0.34) * hair) * gleam[:, None]
    return colour


def _is_near(view: HeadView, side: float) -> bool:
    return side * view.state.yaw < _FAR_TURN


def _lock(view: HeadView, side: float, end: float) -> Points:
    """The outline of the hair that falls in front of one ear down to the height ``end``."""
    outer = [(0.50, -0.52, 0.30), (0.66, -0.3, 0.0), (0.74, 0.1, -0.08), (0.73, end * 0.75, -0.08), (0.60, end, -0.02)]
    inner = [(0.50, end * 0.98, 0.1), (0.565, end * 0.6, 0.14), (0.58, 0.1, 0.12), (0.56, -0.2, 0.24)]
    return np.array([*outer, *inner]) * (side * view.identity.face_width, 1, 1)


def _paint_curls(canvas: Pixels, mask: Pixels, view: HeadView, shape: HairShape) -> None:
    """Round curls over the shell, from back to front, each with a spot where the light falls."""
    directions, sizes, tones = curl_points(view.identity, shape)
    turned = (SKULL_CENTRE + directions * _shell_radii(view, shape)) @ view.head.rotation.T
    facing = directions @ view.head.rotation.T
    places = view.pixels(turned[:, :2])
    shift = view.light[:2] * 0.3
    base = view.identity.hair
    r, g, b = base
    for index in np.argsort(turned[:, 2]):
        if facing[index, 2] < -0.45:
            continue
        radius = float(sizes[index]) * view.unit
        tone = float(tones[index]) * (0.72 + 0.34 * max(0.0, float(facing[index] @ view.light)))
        brushes.disc(canvas, places[index], radius, shade(base, tone * 0.8))
        brushes.disc(canvas, places[index] + shift * radius, radius * 0.62, shade((r + 10, g + 8, b + 8), tone * 1.16))
        brushes.disc(mask, places[index], radius, 255)
