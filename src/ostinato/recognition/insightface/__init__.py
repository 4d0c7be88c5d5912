"""Files of InsightFace and of its MXNet predecessor: weights of backbones, and class centres kept one file a rank."""

from __future__ import annotations

from ostinato.recognition.insightface.backbone_weights import (
    backbones_that_fit,
    load_backbone_weights,
    read_backbone_weights,
    write_backbone_weights,
)
from ostinato.recognition.insightface.centres import read_centres

__all__ = [
    "backbones_that_fit",
    "load_backbone_weights",
    "read_backbone_weights",
    "read_centres",
    "write_backbone_weights",
]
