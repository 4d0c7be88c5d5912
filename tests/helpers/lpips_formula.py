"""Weights for ``lpips`` losses made by a formula, since the published ones are large and not ours to give away."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ostinato.swap.losses import LpipsWeights
from ostinato.swap.losses.lpips_networks import NETWORKS


def _uniform(first: int, count: int) -> np.ndarray:
    """The numbers 0..1 that belong to ``count`` integers from ``first`` on."""
    k = np.arange(first, first + count, dtype=np.uint64).astype(np.uint32) * np.uint32(2654435761)
    k ^= k >> np.uint32(15)
    k *= np.uint32(2246822519)
    k ^= k >> np.uint32(13)
    k *= np.uint32(3266489917)
    k ^= k >> np.uint32(16)
    return (k >> np.uint32(8)).astype(np.float64) / 2**24


@functools.cache
def formula_weights(name: str) -> LpipsWeights:
    """Trunk and head of ``lpips_alex``, ``lpips_squeeze`` or ``lpips_vgg16``. Not to be changed."""
    network = NETWORKS[name]
    trunk: dict[str, Tensor] = {}
    for number, (key, shape) in enumerate(network.trunk_shapes.items()):
        x = 2 * _uniform(1 + 7919003 * (number + 1), math.prod(shape)) - 1
        x *= math.sqrt(6 / math.prod(shape[1:])) if len(shape) == 4 else 0.05
        trunk[key] = torch.from_numpy(x.reshape(shape).astype(np.float32))
    head = [
        torch.from_numpy((0.02 + 0.08 * _uniform(1 + 104729 * (j + 1), n)).reshape(1, n, 1, 1).astype(np.float32))
        for j, n in enumerate(network.channels)
    ]
    return LpipsWeights(name, trunk, tuple(head))


def write_formula_files(name: str, folder: Path) -> tuple[Path, Path]:
    """Files of the trunk, in a whole network as torchvision saves it, and of the head, as the package lpips has it."""
    weights = formula_weights(name)
    trunk, head = folder / f"{name}_trunk.pth", folder / f"{name}_head.pth"
    torch.save({**weights.trunk, "classifier.1.weight": torch.zeros(3, 4)}, trunk)
    torch.save({f"lin{index}.model.1.weight": tensor for index, tensor in enumerate(weights.head)}, head)
    return trunk, head
