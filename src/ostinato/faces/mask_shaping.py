"""What is done to a finished mask: growing or shrinking, sharpening by a threshold, blurring.

Masks are (N, N) uint8, 0 outside and 255 inside. Nothing here changes its argument.
"""

from __future__ import annotations

from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.uint8]

BLUR_REFERENCE_SIZE = 128
"""The mask size, in pixels, that the blur option is meant for."""

PASS_SHRINKAGE = {"gaussian": 0.8, "box": 0.5}
"""How much smaller the kernel of each further pass is."""


def dilate_mask(mask: Mask, percent: float) -> Mask:
    """The mask grown by an ellipse of ``percent`` of its side; shrunk where ``percent`` is negative.

    A kernel that rounds to less than 2 pixels changes nothing.
    """
    side = round(mask.shape[0] * abs(percent) / 100)
    if side < 2:
        return mask
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    operation = cv2.dilate if percent > 0 else cv2.erode
    return np.asarray(operation(mask, kernel), np.uint8)


def threshold_mask(mask: Mask, percent: float) -> Mask:
    """The mask with values below ``percent`` of full set to 0, and those above full less ``percent`` set to 255."""
    if percent <= 0:
        return mask
    limit = 2.55 * percent
    return np.where(mask < limit, np.uint8(0), np.where(mask > 255 - limit, np.uint8(255), mask))


def scaled_kernel(setting: float, size: int) -> int:
    """The kernel side, in pixels, that the blur option means for a mask of ``size`` pixels; 0: no blur."""
    return odd_kernel(round(setting * size / BLUR_REFERENCE_SIZE))


def odd_kernel(side: int) -> int:
    """The next odd kernel side; 0 below 2, where a kernel would do nothing."""
    return 0 if side < 2 else side + 1 - side % 2


def blur_mask(mask: Mask, kernel: int, kind: Literal["gaussian", "box"] = "gaussian", passes: int = 1) -> Mask:
    """The mask blurred.

    :param kernel: side in pixels, made odd; below 2 nothing happens. The width of a gaussian follows from its side.
    :param passes: how often; the kernel shrinks from pass to pass (:data:`PASS_SHRINKAGE`).
    """
    for _ in range(passes):
        kernel = odd_kernel(kernel)
        if not kernel:
            break
        size = (kernel, kernel)
        mask = np.asarray(cv2.GaussianBlur(mask, size, 0) if kind == "gaussian" else cv2.blur(mask, size), np.uint8)
        kernel = round(kernel * PASS_SHRINKAGE[kind])
    return mask
