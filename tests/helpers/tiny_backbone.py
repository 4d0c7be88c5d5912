"""A backbone that costs nothing to train, for tests of everything around it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ostinato.config import RecognitionOptions
from ostinato.recognition.backbones import Backbone

PLACES = ("ostinato.recognition.training.build_network", "ostinato.recognition.speed_test.build_network")
"""What to replace by :func:`build_tiny_backbone`, so that trainings use it."""


class TinyBackbone(Backbone):
    """Pixels averaged over squares of eight, two layers, and a batch norm between them and behind."""

    def __init__(self, embedding_size: int, half_precision: torch.dtype | None = None) -> None:
        super().__init__("tiny", embedding_size, half_precision)
        self.shrink = nn.AvgPool2d(8)
        self.first = nn.Linear(3 * 14 * 14, 16)
        self.norm = nn.BatchNorm1d(16)
        self.dropout = nn.Dropout(0.1)
        self.second = nn.Linear(16, embedding_size)
        self.features = nn.BatchNorm1d(embedding_size)

    def embed(self, pictures: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.first(self.shrink(pictures).flatten(1))))
        return self.features(self.second(self.dropout(hidden)))

    def initialize(self, generator: torch.Generator | None) -> None:
        with torch.no_grad():
            for layer in (self.first, self.second):
                layer.weight.normal_(0, 0.1, generator=generator)
                layer.bias.zero_()


def build_tiny_backbone(options: RecognitionOptions) -> Backbone:
    """In the place of the network that the options name."""
    backbone = TinyBackbone(options.model.embedding_size)
    backbone.initialize(torch.Generator().manual_seed(options.seed or 0))
    return backbone
