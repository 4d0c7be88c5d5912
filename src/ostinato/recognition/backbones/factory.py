"""From a name to a backbone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from ostinato.errors import ArgumentValueError
from ostinato.optim.nearest_names import did_you_mean
from ostinato.recognition.backbones.backbone import Backbone
from ostinato.recognition.backbones.iresnet import IResNet
from ostinato.recognition.backbones.mobilefacenet import MobileFaceNet
from ostinato.recognition.backbones.vit import VisionTransformer


@dataclass(frozen=True)
class _Residual:
    blocks: tuple[int, int, int, int]
    # Where the network is too deep for one checkpoint a block: segments in each stage, and always on.
    segments: tuple[int, int, int, int] | None = None


@dataclass(frozen=True)
class _Mobile:
    blocks: tuple[int, int, int, int]
    scale: int


@dataclass(frozen=True)
class _Transformer:
    width: int
    depth: int
    drop_path: float
    masking: bool
    checkpointing: bool = False


_NETWORKS: dict[str, _Residual | _Mobile | _Transformer] = {
    "r18": _Residual((2, 2, 2, 2)),
    "r34": _Residual((3, 4, 6, 3)),
    "r50": _Residual((3, 4, 14, 3)),
    "r100": _Residual((3, 13, 30, 3)),
    "r200": _Residual((6, 26, 60, 6)),
    "r2060": _Residual((3, 128, 896, 3), segments=(0, 20, 100, 0)),
    "mbf": _Mobile((1, 4, 6, 2), 2),
    "mbf_large": _Mobile((2, 8, 12, 4), 4),
    "vit_t": _Transformer(256, 12, 0.1, True),
    "vit_t_dp005_mask0": _Transformer(256, 12, 0.05, False),
    "vit_s": _Transformer(512, 12, 0.1, True),
    "vit_s_dp005_mask_0": _Transformer(512, 12, 0.05, False),
    "vit_b": _Transformer(512, 24, 0.1, True, checkpointing=True),
    "vit_b_dp005_mask_005": _Transformer(512, 24, 0.05, True, checkpointing=True),
    "vit_l_dp005_mask_005": _Transformer(768, 24, 0.05, True, checkpointing=True),
    "vit_h": _Transformer(1024, 48, 0.1, False, checkpointing=True),
}

_OTHER_NAMES = {
    "iresnet18": "r18",
    "iresnet34": "r34",
    "iresnet50": "r50",
    "iresnet100": "r100",
    "iresnet200": "r200",
    "mobilefacenet": "mbf",
    "vit_l": "vit_l_dp005_mask_005",
}
"""What people call a network that has another name here; suggested, and not accepted."""


def backbone_names() -> tuple[str, ...]:
    """The names that :func:`build_backbone` knows. Names that differ after ``vit_t`` and so on share their weights."""
    return tuple(_NETWORKS)


def build_backbone(
    name: str,
    *,
    embedding_size: int = 512,
    dropout: float = 0.0,
    half_precision: bool | torch.dtype = False,
    checkpointing: bool | None = None,
    seed: int | None = None,
) -> Backbone:
    """Build a backbone and give it its first weights.

    :param name: one of :func:`backbone_names`.
    :param embedding_size: numbers in an embedding, 1 or more.
    :param dropout: part of the last feature map that is dropped in training, 0 to below 1. Only the residual networks
        have this layer; the others ignore it.
    :param half_precision: True for ``torch.float16``, or ``torch.bfloat16``. Which layers that means is said by each
        network's class; weights and embeddings stay float32.
    :param checkpointing: keep one activation per block in training and compute the others again: about a third more
        time for much less memory, and the same numbers. None: on for r2060 (which has it always), vit_b, vit_l, vit_h.
    :param seed: the same seed gives the same weights, and nothing is drawn from the global generators. None draws from
        PyTorch's global generator.
    :returns: the network in training mode, float32, on the CPU, in contiguous memory; on a GPU move it, and the
        pictures, with ``memory_format=torch.channels_last``. What it draws in training (dropped paths, masked tokens)
        comes from the global generator of the device.
    :raises ArgumentValueError: there is no such name, or a value is out of its range.
    """
    backbone = build_empty_backbone(
        name,
        embedding_size=embedding_size,
        dropout=dropout,
        half_precision=half_precision,
        checkpointing=checkpointing,
    )
    backbone.to_empty(device="cpu")
    backbone.initialize(None if seed is None else torch.Generator().manual_seed(seed))
    return backbone


def build_empty_backbone(
    name: str,
    *,
    embedding_size: int = 512,
    dropout: float = 0.0,
    half_precision: bool | torch.dtype = False,
    checkpointing: bool | None = None,
) -> Backbone:
    """Build a backbone on the meta device: shapes without memory. Arguments as in :func:`build_backbone`."""
    network = _network(name)
    _check_embedding_size(embedding_size)
    if not 0 <= dropout < 1:
        raise ArgumentValueError(
            f"dropout is {dropout}.", advice="It is a part of the feature map: 0 or more, and below 1.", dropout=dropout
        )
    half = _half_dtype(half_precision)
    with torch.device("meta"):
        if isinstance(network, _Residual):
            segments = network.segments or (network.blocks if checkpointing else (0, 0, 0, 0))
            return IResNet(
                name,
                network.blocks,
                embedding_size=embedding_size,
                dropout=dropout,
                half_precision=half,
                segments=segments,
            )
        if isinstance(network, _Mobile):
            return MobileFaceNet(
                name,
                network.blocks,
                scale=network.scale,
                embedding_size=embedding_size,
                half_precision=half,
                checkpointing=bool(checkpointing),
            )
        return VisionTransformer(
            name,
            width=network.width,
            depth=network.depth,
            drop_path=network.drop_path,
            masking=network.masking,
            embedding_size=embedding_size,
            half_precision=half,
            checkpointing=network.checkpointing if checkpointing is None else checkpointing,
        )


@lru_cache(maxsize=64)
def state_shapes(name: str, embedding_size: int = 512) -> dict[str, tuple[int, ...]]:
    """Shape of every entry of a backbone's state, in the published order. Not to be changed by the caller."""
    backbone = build_empty_backbone(name, embedding_size=embedding_size)
    return {key: tuple(value.shape) for key, value in backbone.state_dict().items()}


def _network(name: str) -> _Residual | _Mobile | _Transformer:
    network = _NETWORKS.get(name) if isinstance(name, str) else None
    if network is not None:
        return network
    other = _OTHER_NAMES.get(str(name).lower())
    raise ArgumentValueError(
        f"There is no backbone called {name!r}.",
        advice=f"It is called {other!r} here." if other else did_you_mean(str(name), _NETWORKS),
        name=name,
    )


def _check_embedding_size(size: int) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ArgumentValueError(
            f"embedding_size is {size!r}.",
            advice="Give a whole number of 1 or more; 512 is usual.",
            embedding_size=size,
        )


def _half_dtype(half_precision: bool | torch.dtype) -> torch.dtype | None:
    if isinstance(half_precision, bool):
        return torch.float16 if half_precision else None
    if half_precision in (torch.float16, torch.bfloat16):
        return half_precision
    raise ArgumentValueError(
        f"half_precision is {half_precision!r}.",
        advice="Give True for torch.float16, torch.bfloat16, or False for neither.",
        half_precision=half_precision,
    )


@lru_cache(maxsize=8)
def old_mobilefacenet_shapes(blocks: tuple[int, int, int, int], embedding_size: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the MobileFaceNet of scale 1, which ``mbf`` and ``mbf_large`` meant before 22 July 2021."""
    with torch.device("meta"):
        network = MobileFaceNet(
            "mbf", blocks, scale=1, embedding_size=embedding_size, half_precision=None, checkpointing=False
        )
    return {key: tuple(value.shape) for key, value in network.state_dict().items()}


def residual_network_of(blocks: tuple[int, ...]) -> str | None:
    """The name of the residual network with so many blocks in its four stages; None where there is none."""
    for name, network in _NETWORKS.items():
        if isinstance(network, _Residual) and network.blocks == blocks:
            return name
    return None
