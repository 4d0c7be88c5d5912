"""Hair: where it grows on the skull, and what its strands look like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ostinato.faces.drawn.face_model import Points
from ostinato.faces.drawn.identity import DrawnIdentity
from ostinato.faces.drawn.shading import Field, Surface, smoothstep


@dataclass(frozen=True)
class HairShape:
    """One style. Heights are of the skull's unit sphere: 1 the crown, 0 its middle, near the eyes.

    :param shell: radius of the hair's outer surface relative to the skull's; 0 for none.
    :param front, side, nape: height of the hairline above the forehead, in front of the ears and at the back.
    :param waves, wave_depth: number and depth of the fringe's points.
    :param parted: how much the hairline slants with the parting.
    :param strands: strength of the strands' light and dark.
    :param gloss: strength of the highlight.
    :param behind: hair that hangs behind the head: "", "bob", "long" or "cloud".
    :param locks: how far locks hang in front of the ears, head coordinates; 0 for none.
    :param curls: whether the hair is drawn as curls, and ``curl_size`` their radius in face units.
    :param ears: whether ears are seen.
    """

    shell: float
    front: float = 0.55
    side: float = -0.05
    nape: float = -0.35
    waves: int = 0
    wave_depth: float = 0.0
    parted: float = 0.0
    strands: float = 0.05
    gloss: float = 0.5
    opacity: float = 1.0
    behind: str = ""
    locks: float = 0.0
    curls: bool = False
    curl_size: float = 0.1
    bun: bool = False
    ears: bool = True


HAIR_SHAPES: dict[str, HairShape] = {
    "bald": HairShape(shell=0),
    "buzz": HairShape(shell=1.02, front=0.60, side=0.02, strands=0.015, gloss=0.1, opacity=0.82),
    "short": HairShape(shell=1.10, front=0.56, side=-0.12, waves=9, wave_depth=0.035),
    "side_part": HairShape(shell=1.13, front=0.54, side=-0.14, parted=0.30, strands=0.06, gloss=0.7),
    "fringe": HairShape(shell=1.12, front=0.30, side=-0.12, waves=12, wave_depth=0.06, gloss=0.7),
    "bob": HairShape(
        shell=1.14, front=0.50, side=-0.2, parted=0.28, strands=0.06, gloss=0.8, behind="bob", locks=0.66, ears=False
    ),
    "long": HairShape(
        shell=1.13, front=0.52, side=-0.2, parted=0.12, strands=0.06, gloss=0.8, behind="long", locks=1.15, ears=False
    ),
    "bun": HairShape(shell=1.06, front=0.58, side=-0.02, strands=0.05, gloss=0.8, bun=True),
    "curly": HairShape(
        shell=1.12, front=0.56, side=0.14, nape=0.0, strands=0.0, gloss=0.0, curls=True, curl_size=0.085
    ),
    "afro": HairShape(
        shell=1.34,
        front=0.50,
        side=-0.05,
        nape=-0.3,
        strands=0.0,
        gloss=0.0,
        behind="cloud",
        curls=True,
        curl_size=0.12,
        ears=False,
    ),
}


def hair_cover(surface: Surface, shape: HairShape, identity: DrawnIdentity, yaw: float) -> Field:
    """Coverage (0 to 1) of the hair on its shell, per pixel of ``surface``; ``yaw`` in degrees."""
    x, y, z = surface.unit
    line = _hairline(np.arctan2(x, z), shape, identity)
    # Seen from the side, the hair over the far temple would end in a spike against the background; lift it there.
    # Locks go on from there, so with them the hair stays.
    turned = 0.0 if shape.locks else min(max(abs(yaw) - 4.0, 0.0) / 10.0, 1.0)
    if turned:
        is_far = (x * np.float32(np.sign(yaw)) > 0) & (z > 0)
        line = line + np.float32(0.45 * turned) * (1 - smoothstep(0.0, 0.5, surface.towards_viewer())) * is_far
    # The edge is one pixel and a half wide, measured where the shell faces the viewer.
    sharpness = np.float32(surface.scale * surface.radii[1] / 1.5)
    return np.clip((-y - line) * sharpness + np.float32(0.5), 0, 1) * surface.coverage


def hair_strands(surface: Surface, shape: HairShape, identity: DrawnIdentity) -> Field:
    """Brightness around 0 of strands and of the hair's lower edge, per pixel of ``surface``."""
    x, y, z = surface.unit
    above = -y - _hairline(np.arctan2(x, z), shape, identity)
    edge = np.float32(0.16) * (1 - smoothstep(0.0, 0.22, above))
    if not shape.strands:
        return -edge
    # Strands run down from the parting.
    parting = np.float32(0.45 * identity.parting if shape.parted else 0.0)
    flow = np.arctan2(x - parting, np.float32(1.25) + y)
    phase = np.float32(identity.detail_seed % 7)
    strands = np.sin(flow * 34 + phase) * np.float32(0.6) + np.sin(flow * 71 + 2 * phase) * np.float32(0.4)
    return strands * np.float32(shape.strands) - edge


def _hairline(around: Field, shape: HairShape, identity: DrawnIdentity) -> Field:
    """Height of the hairline for each longitude (radians, 0 in front)."""
    away = np.abs(around)
    falling = smoothstep(0.75, 1.35, away)
    line = np.float32(shape.front) + np.float32(shape.side - shape.front) * falling
    line = line + np.float32(shape.nape - shape.side) * smoothstep(1.45, 1.8, away)
    if shape.parted:
        from_parting = np.sin(around) - np.float32(0.45 * identity.parting)
        line = (
            line
            - np.float32(shape.parted) * np.abs(from_parting) * (1 - falling)
            + np.float32(0.10 * (1 if shape.parted else 0))
        )
    if shape.waves:
        wave = np.abs(np.sin(around * np.float32(shape.waves / 2) + np.float32(identity.detail_seed % 5)))
        line = line + np.float32(shape.wave_depth) * (wave - np.float32(0.5)) * (1 - falling)
    return line


def curl_points(identity: DrawnIdentity, shape: HairShape) -> tuple[Points, NDArray[Any], NDArray[Any]]:
    """Directions (n, 3) on the unit sphere, radii in face units and tones of the curls of ``identity``."""
    rng = np.random.default_rng((0xC0B1, identity.detail_seed))
    count = 190 if shape.curl_size < 0.1 else 230
    index = np.arange(count) + 0.5
    up = 1 - 2 * index / count
    turn = np.pi * (1 + 5**0.5) * index
    flat = np.sqrt(1 - up**2)
    directions = np.stack([flat * np.sin(turn), -up, flat * np.cos(turn)], axis=1)
    directions += rng.normal(0, 0.04, directions.shape)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    around = np.arctan2(directions[:, 0], directions[:, 2]).astype(np.float32)
    keep = -directions[:, 1] > _hairline(around, shape, identity) + 0.03
    sizes = shape.curl_size * rng.uniform(0.8, 1.25, count)
    tones = rng.uniform(0.9, 1.1, count)
    return directions[keep], sizes[keep], tones[keep]
