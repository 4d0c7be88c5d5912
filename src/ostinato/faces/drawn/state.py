"""How a face is seen: pose, expression, light, background and place in the frame. The same for any identity."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass

import numpy as np

from ostinato.faces.drawn.identity import Colour


@dataclass(frozen=True)
class FaceState:
    """Everything of a picture but the person.

    :param yaw, pitch, roll: degrees. Positive yaw turns the face to the right of the image, positive pitch down,
        positive roll clockwise.
    :param mouth_open, smile, brow_raise, blink: 0 to 1 (``smile`` and ``brow_raise`` from -0.5).
    :param gaze: where the eyes look, -1 to 1 right and down.
    :param light_azimuth, light_elevation: degrees; 0, 0 is light from the camera, 90 from the right or from above.
    :param light_strength: 0 (flat) to 1 (hard).
    :param light_colour: RGB factors around 1.
    :param background: upper and lower colour.
    :param frame_size: height and width of the frame, pixels.
    :param centre: x, y of the head's centre in the frame, pixels.
    :param scale: frame pixels per face unit (a head is about 1.3 units wide and 1.8 high).
    """

    yaw: float = 0.0
    pitch: float = 0.0
    roll: float = 0.0
    mouth_open: float = 0.0
    smile: float = 0.2
    brow_raise: float = 0.0
    blink: float = 0.0
    gaze: tuple[float, float] = (0.0, 0.0)
    light_azimuth: float = -30.0
    light_elevation: float = 35.0
    light_strength: float = 0.6
    light_colour: tuple[float, float, float] = (1.0, 1.0, 1.0)
    background: tuple[Colour, Colour] = ((176, 196, 214), (122, 146, 172))
    frame_size: tuple[int, int] = (480, 640)
    centre: tuple[float, float] = (320.0, 240.0)
    scale: float = 110.0

    @classmethod
    def from_seed(cls, seed: int, index: int = 0) -> FaceState:
        """The state that belongs to ``(seed, index)``; the same on every machine.

        :param seed: any integer >= 0, one per collection of pictures.
        :param index: number of the picture within the collection, >= 0.
        """
        rng = np.random.default_rng((0x57A7E, seed, index))
        hue = float(rng.random())
        warmth = float(rng.uniform(-1, 1))
        height, width = 480, 640
        return cls(
            yaw=float(np.clip(rng.normal(0, 15), -35, 35)),
            pitch=float(np.clip(rng.normal(0, 8), -18, 18)),
            roll=float(np.clip(rng.normal(0, 7), -22, 22)),
            mouth_open=float(max(0.0, rng.uniform(-0.5, 1.0))),
            smile=float(rng.uniform(-0.25, 1.0)),
            brow_raise=float(np.clip(rng.normal(0.15, 0.4), -0.5, 1.0)),
            blink=float(rng.uniform(0.5, 1.0)) if rng.random() < 0.08 else float(rng.uniform(0.0, 0.15)),
            gaze=(float(rng.uniform(-0.8, 0.8)), float(rng.uniform(-0.4, 0.5))),
            light_azimuth=float(rng.uniform(-65, 65)),
            light_elevation=float(rng.uniform(5, 55)),
            light_strength=float(rng.uniform(0.35, 0.9)),
            light_colour=(1.0 + 0.03 * warmth, 1.0, 1.0 - 0.05 * warmth),
            background=(_pastel(hue, 0.80, 0.35), _pastel(hue + float(rng.uniform(-0.12, 0.12)), 0.58, 0.3)),
            frame_size=(height, width),
            centre=(width * float(rng.uniform(0.4, 0.6)), height * float(rng.uniform(0.46, 0.54))),
            scale=float(rng.uniform(95, 135)),
        )


def _pastel(hue: float, lightness: float, saturation: float) -> Colour:
    r, g, b = (round(255 * c) for c in colorsys.hls_to_rgb(hue % 1.0, lightness, saturation))
    return r, g, b
