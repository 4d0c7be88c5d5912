"""A swap whose right answer is known: two drawn people, faces to train on, and unseen ones to be judged by."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.faces.drawn import DEMO_IDENTITIES, FaceState, draw_face, write_drawn_folder
from ostinato.swap.losses.ssim import ssim_map, window_matrix

TRAINING_SEEDS = {"a": 1, "b": 2}
"""Of the states the two are seen in while training: different ones, as two people are never filmed alike."""

UNSEEN_SEED = 3
"""Of the states that the swap is judged by; training never sees them."""


@dataclass(frozen=True)
class Similarity:
    """How much pictures resemble the right ones, inside the face.

    :param ssim: structural similarity (Wang et al., 2004), mean over the pixels of the faces; 1 is equal.
    :param psnr: peak signal-to-noise ratio over the same pixels, dB.
    """

    ssim: float
    psnr: float


@dataclass(frozen=True, eq=False)
class UnseenFaces:
    """Pictures of ``a`` that no model has seen, and the same with ``b``'s face.

    All RGB uint8, cut as in training with ``face`` centering at full coverage.
    """

    sources: NDArray[np.uint8]
    """(n, size, size, 3): ``a``."""
    truths: NDArray[np.uint8]
    """(n, size, size, 3): ``b`` in the same pose, expression, light and place."""
    masks: NDArray[np.uint8]
    """(n, size, size): 255 on ``b``'s visible face."""

    def similarity(self, pictures: NDArray[np.uint8]) -> Similarity:
        """Compare pictures (n, size, size, 3) with the true swaps."""
        inside = torch.from_numpy(self.masks > 127)[:, None].expand(-1, 3, -1, -1)
        target, given = _floats(self.truths), _floats(pictures)
        window = window_matrix(target.shape[-1])
        ssim = 1 - ssim_map(target, given, window, window)[inside].mean()
        squared = (target - given).square()[inside].mean()
        return Similarity(float(ssim), -10 * math.log10(max(float(squared), 1e-10)))


def unseen_faces(count: int, size: int) -> UnseenFaces:
    """Draw the faces that a swap is judged by; the same ones in every call."""
    states = [FaceState.from_seed(UNSEEN_SEED, index) for index in range(count)]
    sources = [draw_face(DEMO_IDENTITIES["a"], state, size, centering="face").image for state in states]
    truths = [draw_face(DEMO_IDENTITIES["b"], state, size, centering="face") for state in states]
    return UnseenFaces(
        np.stack(sources), np.stack([truth.image for truth in truths]), np.stack([truth.mask for truth in truths])
    )


def write_training_folders(folder: Path, count: int, size: int, tell: Callable[[str], None]) -> dict[str, Path]:
    """Draw both people's training faces into ``folder/a`` and ``folder/b``; what is there already is kept."""
    folders = {}
    for side, seed in TRAINING_SEEDS.items():
        target = folders[side] = folder / side
        there = len(list(target.glob("*.png"))) if target.is_dir() else 0
        if there < count:
            tell(f"drawing {count} faces of {side} into {target}")
            write_drawn_folder(target, DEMO_IDENTITIES[side], count, seed, size)
    return folders


def write_unseen_folder(folder: Path, count: int, size: int) -> Path:
    """Draw the faces of ``a`` that are to be swapped, as extracted faces."""
    write_drawn_folder(folder, DEMO_IDENTITIES["a"], count, UNSEEN_SEED, size)
    return folder


@torch.no_grad()
def swapped(model: Callable[[Tensor], list[Tensor]], unseen: UnseenFaces) -> NDArray[np.uint8]:
    """What a model that draws ``b``'s faces makes of the unseen faces of ``a``; (n, size, size, 3)."""
    drawn = model(_floats(unseen.sources))[-1]
    return drawn.clamp(0, 1).mul(255).round().byte().permute(0, 2, 3, 1).contiguous().numpy()


def comparison_sheet(unseen: UnseenFaces, pictures: NDArray[np.uint8], count: int, zoom: int = 2) -> NDArray[np.uint8]:
    """Three labelled rows of ``count`` faces: the picture, the swap, the true swap; (height, width, 3) RGB."""
    size = unseen.sources.shape[1] * zoom
    label_width = size
    rows = []
    for label, images in (("a", unseen.sources), ("swap", pictures), ("true swap", unseen.truths)):
        head = np.full((size, label_width, 3), 255, np.uint8)
        cv2.putText(head, label, (8, size // 2 + 6), cv2.FONT_HERSHEY_SIMPLEX, size / 250, (40, 40, 40), 1, cv2.LINE_AA)
        cells = [cv2.resize(image, (size, size), interpolation=cv2.INTER_CUBIC) for image in images[:count]]
        rows.append(np.concatenate([head, *cells], axis=1))
    return np.concatenate(rows, axis=0)


def _floats(pictures: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255
