"""Backbones, pictures and arrays filled by the formula of the golden numbers: no generator has to agree."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ostinato.recognition.backbones import Backbone
from ostinato.recognition.backbones.iresnet import IResNet
from ostinato.recognition.backbones.mobilefacenet import MobileFaceNet
from ostinato.recognition.backbones.vit import VisionTransformer


def formula(stream: int, count: int) -> NDArray[np.float64]:
    """Numbers from 0 to below 1: an integer hash of (i + 1000003 * stream), for i = 0 .. count - 1."""
    x = ((np.arange(count, dtype=np.uint64) + 1000003 * stream) & 0xFFFFFFFF).astype(np.uint32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    x ^= x >> np.uint32(16)
    return x.astype(np.float64) / 2**32


def formula_tensor(stream: int, *shape: int, low: float = -1.0, high: float = 1.0) -> Tensor:
    """A float64 tensor of formula numbers from ``low`` to ``high``."""
    return torch.from_numpy(low + (high - low) * formula(stream, math.prod(shape)).reshape(shape))


def formula_pictures(count: int = 2) -> Tensor:
    """``[count, 3, 112, 112]``, float64, -1 to 1."""
    return formula_tensor(900000, count, 3, 112, 112)


def formula_entry(kind: str, number: int, shape: tuple[int, ...]) -> Tensor:
    """Entry ``number`` (from 1) of a state, float64."""
    if kind == "counter":
        return torch.zeros(shape, dtype=torch.int64)
    u = formula_tensor(number, *shape, low=0.0)
    if kind == "matrix":
        return (2 * u - 1) * math.sqrt(3 / math.prod(shape[1:]))
    if kind == "prelu":
        return 0.1 + 0.3 * u
    return 0.5 + u if kind in ("running_var", "norm_weight") else 0.2 * (u - 0.5)


def kind_of(name: str, shape: tuple[int, ...], prelus: frozenset[str]) -> str:
    """Which formula an entry of a state gets."""
    last = name.rsplit(".", 1)[-1]
    if last in ("running_mean", "running_var", "bias"):
        return last
    if last == "num_batches_tracked":
        return "counter"
    if name in ("pos_embed", "mask_token"):
        return "embed"
    if len(shape) > 1:
        return "matrix"
    return "prelu" if name in prelus else "norm_weight"


def fill_by_formula(network: nn.Module) -> None:
    """Give every entry of a network's state its formula numbers, in its own dtype."""
    prelus = frozenset(f"{name}.weight" for name, part in network.named_modules() if isinstance(part, nn.PReLU))
    with torch.no_grad():
        for number, (name, value) in enumerate(network.state_dict().items(), 1):
            shape = tuple(value.shape)
            value.copy_(formula_entry(kind_of(name, shape, prelus), number, shape))


def small_backbone(
    family: str, *, embedding_size: int = 8, half_precision: torch.dtype | None = None, checkpointing: bool = False
) -> Backbone:
    """The smallest network of each family that has all of its parts: ``iresnet``, ``mobilefacenet`` or ``vit``.

    Only the number of blocks and, for the transformer, the width of a token are below those of the real ones. The
    transformer drops paths and masks tokens in training.
    """
    network: Backbone
    if family == "iresnet":
        network = IResNet(
            "small",
            (2, 1, 1, 1),
            embedding_size=embedding_size,
            dropout=0.0,
            half_precision=half_precision,
            segments=(2, 1, 1, 1) if checkpointing else (0, 0, 0, 0),
        )
    elif family == "mobilefacenet":
        network = MobileFaceNet(
            "small",
            (1, 1, 1, 1),
            scale=1,
            embedding_size=embedding_size,
            half_precision=half_precision,
            checkpointing=checkpointing,
        )
    else:
        network = VisionTransformer(
            "small",
            width=32,
            depth=3,
            drop_path=0.3,
            masking=True,
            embedding_size=embedding_size,
            half_precision=half_precision,
            checkpointing=checkpointing,
        )
    network.initialize(torch.Generator().manual_seed(0))
    return network
