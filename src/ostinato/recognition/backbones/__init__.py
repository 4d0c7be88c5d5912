"""The networks that turn a face into an embedding, with the state names of the published weight files."""

from __future__ import annotations

from ostinato.recognition.backbones.backbone import Backbone
from ostinato.recognition.backbones.factory import backbone_names, build_backbone

__all__ = ["Backbone", "backbone_names", "build_backbone"]
