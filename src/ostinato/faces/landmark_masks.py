"""Masks drawn from landmarks: the whole face, the face with its brow, the eyes, the mouth.

Each area is a union of convex hulls over groups of points. They are drawn at the size they are used at.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.errors import ArgumentValueError
from ostinato.faces.alignment import to_68
from ostinato.faces.mask_shaping import blur_mask, dilate_mask, odd_kernel, scaled_kernel

LANDMARK_MASKS = ("components", "extended", "eye", "mouth")
"""``components`` is the face from brow to chin, ``extended`` the same with the brows lifted half an eye's height."""

FEATURE_DILATION = 2.5
"""Percent by which the eye and mouth masks always grow: their points sit on the rim of what they mark."""

FEATURE_BLUR_PART = 16
"""The kernel that blurs eye and mouth masks is this part of the mask's side."""


def _span(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


Groups = tuple[tuple[int, ...], ...]

_FACE_68: Groups = (
    (*_span(0, 8), 17),
    (*_span(8, 16), 26),
    (*_span(17, 19), 8),
    (*_span(24, 26), 8),
    (*_span(19, 24), 8),
    (*_span(17, 21), 27, *_span(31, 35), 8),
    (*_span(22, 26), 27, *_span(31, 35), 8),
    _span(27, 35),
)
_FACE_98: Groups = (
    (*_span(0, 16), 33),
    (*_span(16, 32), 46),
    (*_span(33, 35), 16),
    (*_span(44, 46), 16),
    (*_span(35, 44), 16),
    (*_span(33, 37), 51, *_span(55, 59), 16),
    (*_span(42, 46), 51, *_span(55, 59), 16),
    (*_span(51, 54), *_span(55, 59)),
)
POINT_GROUPS: dict[tuple[str, int], Groups] = {
    ("components", 68): _FACE_68,
    ("extended", 68): _FACE_68,
    ("eye", 68): (_span(36, 41), _span(42, 47)),
    ("mouth", 68): (_span(48, 59),),
    ("components", 98): _FACE_98,
    ("eye", 98): (_span(60, 67), _span(68, 75)),
    ("mouth", 98): (_span(76, 87),),
}
"""The groups of points of each mask, by mask name and number of landmarks."""


def draw_landmark_mask(landmarks: NDArray[np.float32], name: str, size: int) -> NDArray[np.uint8]:
    """The bare mask, (size, size) uint8, edges smooth.

    :param landmarks: (68, 2) or (98, 2), in pixels of the mask.
    :param name: one of :data:`LANDMARK_MASKS`.
    :raises ArgumentValueError: four points, or an unknown name.
    """
    points = np.asarray(landmarks, np.float64)
    if name == "extended":
        mapped = to_68(np.asarray(landmarks, np.float32))
        if mapped is not None:
            points = lift_brows(mapped)
    groups = POINT_GROUPS.get((name, len(points)))
    if groups is None:
        if name in LANDMARK_MASKS:
            raise ArgumentValueError(f"A {name!r} mask needs 68 or 98 landmarks; this face has {len(points)}.")
        raise ArgumentValueError(f"{name!r} is no mask drawn from landmarks; those are {', '.join(LANDMARK_MASKS)}.")
    # Rounded points may lie outside the mask, but within what the drawing library can address.
    whole = np.clip(np.rint(points), -30_000, 30_000).astype(np.int32)
    mask = np.zeros((size, size), np.uint8)
    for group in groups:
        cv2.fillConvexPoly(mask, cv2.convexHull(whole[list(group)]), 255, lineType=cv2.LINE_AA)
    return mask


def lift_brows(landmarks: NDArray[np.float32]) -> NDArray[np.float64]:
    """(68, 2) points with the brows raised by half their distance to the eyes; halves are rounded down.

    The outer ends are measured from a point between eye and jaw, as no eye point lies below them.
    """
    p = np.asarray(landmarks, np.float64)

    def half(value: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.floor(value / 2)

    left = half(p[36] + half(p[36] + p[0]))
    right = half(p[45] + half(p[16] + p[45]))
    lifted = p.copy()
    lifted[17:22] += half(p[17:22] - np.vstack([left, p[36:40]]))
    lifted[22:27] += half(p[22:27] - np.vstack([p[42:46], right]))
    return lifted


def landmark_mask(
    landmarks: NDArray[np.float32], name: str, size: int, dilation: float = 0.0, blur_kernel: float = 0.0
) -> NDArray[np.uint8]:
    """The mask as training uses it, (size, size) uint8.

    :param landmarks: (68, 2) or (98, 2), in pixels of the mask.
    :param name: one of :data:`LANDMARK_MASKS`.
    :param dilation: percent of the side, negative to shrink; not for ``eye`` and ``mouth``, whose dilation is fixed.
    :param blur_kernel: pixels for a mask of 128, scaled to ``size``; not for ``eye`` and ``mouth``.
    :raises ArgumentValueError: four points, or an unknown name.
    """
    mask = draw_landmark_mask(landmarks, name, size)
    if name in ("eye", "mouth"):
        return blur_mask(dilate_mask(mask, FEATURE_DILATION), odd_kernel(size // FEATURE_BLUR_PART))
    return blur_mask(dilate_mask(mask, dilation), scaled_kernel(blur_kernel, size))
