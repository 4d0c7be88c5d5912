"""Who is drawn: the traits that stay the same in every picture of one person."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass

import numpy as np

Colour = tuple[int, int, int]
"""Red, green and blue, each 0 to 255."""

HAIR_STYLES = ("bald", "buzz", "short", "side_part", "fringe", "bob", "long", "bun", "curly", "afro")
BEARDS = ("none", "moustache", "goatee", "full")

_SKINS: tuple[Colour, ...] = (
    (250, 214, 190),
    (244, 200, 170),
    (238, 188, 150),
    (222, 166, 122),
    (196, 137, 96),
    (162, 107, 72),
    (124, 80, 54),
    (94, 60, 44),
)
_HAIRS: tuple[Colour, ...] = (
    (38, 30, 32),
    (64, 42, 32),
    (104, 66, 40),
    (150, 98, 52),
    (206, 160, 88),
    (236, 206, 134),
    (178, 72, 34),
    (214, 98, 44),
    (158, 156, 160),
    (226, 226, 228),
)
_EYES: tuple[Colour, ...] = ((70, 44, 28), (112, 72, 34), (84, 122, 66), (64, 112, 158), (96, 108, 122), (36, 96, 96))
_SHIRTS: tuple[Colour, ...] = (
    (58, 92, 148),
    (186, 72, 66),
    (66, 128, 108),
    (226, 178, 74),
    (96, 80, 130),
    (72, 78, 88),
    (222, 224, 226),
    (206, 118, 140),
)


@dataclass(frozen=True)
class DrawnIdentity:
    """A drawn person. Factors are relative to an average face; 1.0 is average.

    :param skin, hair, brow, eye, lip, shirt: colours, RGB.
    :param hair_style: one of ``HAIR_STYLES``.
    :param beard: one of ``BEARDS``.
    :param face_width, chin_length: factors of the outline; ``jaw_squareness`` 0 is pointed, 1 is square.
    :param eye_width, eye_height, eye_spacing: factors; ``eye_tilt`` lifts the outer corner, in face units.
    :param brow_lift, brow_arch: in face units; ``brow_thickness`` a factor.
    :param nose_width, nose_length, mouth_width, lip_thickness, ear_size: factors.
    :param hair_volume: factor of how far the hair stands off the skull.
    :param parting: -1 to 1: where the hair is parted, image left to right.
    :param freckles: number of freckles.
    :param glasses: colour of the frame of the glasses, or None.
    :param lashes: 0 to 1: strength of the upper lash line.
    :param detail_seed: seed of the small details (places of freckles, curls).
    """

    skin: Colour
    hair: Colour
    brow: Colour
    eye: Colour
    lip: Colour
    shirt: Colour
    hair_style: str = "short"
    beard: str = "none"
    face_width: float = 1.0
    chin_length: float = 1.0
    jaw_squareness: float = 0.5
    eye_width: float = 1.0
    eye_height: float = 1.0
    eye_spacing: float = 1.0
    eye_tilt: float = 0.0
    brow_lift: float = 0.0
    brow_arch: float = 0.0
    brow_thickness: float = 1.0
    nose_width: float = 1.0
    nose_length: float = 1.0
    mouth_width: float = 1.0
    lip_thickness: float = 1.0
    ear_size: float = 1.0
    hair_volume: float = 1.0
    parting: float = 0.0
    freckles: int = 0
    glasses: Colour | None = None
    lashes: float = 0.5
    detail_seed: int = 0

    @classmethod
    def from_seed(cls, seed: int) -> DrawnIdentity:
        """The identity that belongs to ``seed``; the same on every machine.

        :param seed: any integer >= 0.
        """
        rng = np.random.default_rng((0x0571, seed))
        skin_at = float(rng.uniform(0, len(_SKINS) - 1))
        skin = _between(_SKINS, skin_at)
        hairs = _HAIRS if skin_at < 4 else (*_HAIRS[:3], _HAIRS[8])
        hair = _jitter(rng, hairs[int(rng.integers(len(hairs)))], 8)
        style = HAIR_STYLES[rng.choice(len(HAIR_STYLES), p=_STYLE_ODDS)]
        soft = style in ("bob", "long", "bun") or (style in ("fringe", "curly", "afro") and rng.random() < 0.5)
        beard = "none" if soft or rng.random() < 0.45 else BEARDS[int(rng.integers(1, len(BEARDS)))]
        return cls(
            skin=_jitter(rng, skin, 5),
            hair=hair,
            brow=shade(hair, 0.72 if sum(hair) < 420 else 0.6),
            eye=_jitter(rng, _EYES[int(rng.integers(len(_EYES)))], 8),
            lip=_lip_colour(skin, 0.55 if soft else 0.25),
            shirt=_jitter(rng, _SHIRTS[int(rng.integers(len(_SHIRTS)))], 10),
            hair_style=style,
            beard=beard,
            face_width=float(rng.uniform(0.93, 1.07)),
            chin_length=float(rng.uniform(0.93, 1.05)),
            jaw_squareness=float(rng.uniform(0.1, 0.5) if soft else rng.uniform(0.35, 1.0)),
            eye_width=float(rng.uniform(1.0, 1.18)),
            eye_height=float(rng.uniform(1.55, 2.05)),
            eye_spacing=float(rng.uniform(0.95, 1.06)),
            eye_tilt=float(rng.uniform(-0.012, 0.022)),
            brow_lift=float(rng.uniform(0.015, 0.065)),
            brow_arch=float(rng.uniform(-0.015, 0.025)),
            brow_thickness=float(rng.uniform(0.6, 1.0) if soft else rng.uniform(0.9, 1.7)),
            nose_width=float(rng.uniform(0.85, 1.25)),
            nose_length=float(rng.uniform(0.92, 1.06)),
            mouth_width=float(rng.uniform(0.85, 1.12)),
            lip_thickness=float(rng.uniform(0.9, 1.4) if soft else rng.uniform(0.65, 1.1)),
            ear_size=float(rng.uniform(0.85, 1.2)),
            hair_volume=float(rng.uniform(0.8, 1.25)),
            parting=float(rng.uniform(-1, 1)),
            freckles=int(rng.integers(12, 30)) if skin_at < 2.5 and rng.random() < 0.35 else 0,
            glasses=(40, 38, 44) if rng.random() < 0.14 else None,
            lashes=float(rng.uniform(0.6, 1.0) if soft else rng.uniform(0.1, 0.5)),
            detail_seed=seed,
        )


_STYLE_ODDS = (0.06, 0.08, 0.14, 0.14, 0.12, 0.12, 0.12, 0.07, 0.1, 0.05)

DEMO_IDENTITIES: dict[str, DrawnIdentity] = {
    "a": DrawnIdentity(
        skin=(248, 208, 180),
        hair=(204, 88, 38),
        brow=(160, 74, 36),
        eye=(70, 132, 84),
        lip=(212, 98, 98),
        shirt=(52, 112, 120),
        hair_style="bob",
        face_width=0.97,
        chin_length=0.96,
        jaw_squareness=0.2,
        eye_width=1.14,
        eye_height=1.95,
        eye_spacing=1.02,
        eye_tilt=0.012,
        brow_lift=0.055,
        brow_arch=0.012,
        brow_thickness=0.75,
        nose_width=0.9,
        nose_length=0.95,
        mouth_width=0.95,
        lip_thickness=1.25,
        parting=-0.5,
        freckles=22,
        lashes=0.9,
        detail_seed=1,
    ),
    "b": DrawnIdentity(
        skin=(138, 90, 60),
        hair=(34, 27, 29),
        brow=(30, 22, 22),
        eye=(74, 46, 30),
        lip=(134, 74, 64),
        shirt=(222, 170, 62),
        hair_style="curly",
        beard="full",
        face_width=1.04,
        chin_length=1.02,
        jaw_squareness=0.85,
        eye_width=1.05,
        eye_height=1.7,
        eye_spacing=1.0,
        brow_lift=0.02,
        brow_thickness=1.65,
        nose_width=1.25,
        nose_length=1.03,
        mouth_width=1.08,
        lip_thickness=1.15,
        ear_size=1.05,
        hair_volume=0.95,
        lashes=0.25,
        detail_seed=2,
    ),
}
"""Two people who differ in everything a swap changes, so that a glance at a preview tells whether it works."""


def _between(colours: tuple[Colour, ...], at: float) -> Colour:
    low = min(int(at), len(colours) - 2)
    part = at - low
    r, g, b = (round(x * (1 - part) + y * part) for x, y in zip(colours[low], colours[low + 1], strict=True))
    return r, g, b


def _jitter(rng: np.random.Generator, colour: Colour, by: int) -> Colour:
    r, g, b = (min(255, max(0, c + int(rng.integers(-by, by + 1)))) for c in colour)
    return r, g, b


def shade(colour: Colour, factor: float | tuple[float, float, float]) -> Colour:
    """``colour`` times ``factor`` (one, or one per channel), kept within 0 to 255."""
    red, green, blue = (factor, factor, factor) if isinstance(factor, (int, float)) else factor
    r, g, b = round(colour[0] * red), round(colour[1] * green), round(colour[2] * blue)
    return min(max(r, 0), 255), min(max(g, 0), 255), min(max(b, 0), 255)


def _lip_colour(skin: Colour, strength: float) -> Colour:
    hue, lightness, saturation = colorsys.rgb_to_hls(*(c / 255 for c in skin))
    rosy = colorsys.hls_to_rgb((hue - 0.05) % 1.0, lightness * 0.78, min(1.0, saturation * (0.8 + 0.4 * strength)))
    r, g, b = (round(255 * c) for c in rosy)
    return r, g, b
