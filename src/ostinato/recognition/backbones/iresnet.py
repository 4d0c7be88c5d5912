"""IResNet: the residual networks of ArcFace, with PReLU and batch norm before the first convolution of a block."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ostinato.recognition.backbones.backbone import Backbone
from ostinato.recognition.backbones.checkpointing import checkpointed
from ostinato.recognition.backbones.first_values import reset_as_torch_does, reset_norm, reset_prelu
from ostinato.recognition.backbones.precision import at_least_float32, full_section, half_section

CHANNELS = (64, 128, 256, 512)
SIDE = 7
"""Width and height of the last feature map: each of the four stages halves 112."""


class ResidualBlock(nn.Module):
    """Batch norm, convolution, batch norm, PReLU, strided convolution, batch norm; plus the input, no activation after.

    :param inputs: channels that come in.
    :param outputs: channels that go out.
    :param stride: of the second convolution.
    :param changes: whether the input needs a convolution of its own to be added, as in the first block of a stage.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, changes: bool) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.prelu = nn.PReLU(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if changes
            else None
        )

    def forward(self, values: Tensor) -> Tensor:
        """``[B, inputs, H, W]`` to ``[B, outputs, H / stride, W / stride]``."""
        shortcut = values if self.downsample is None else self.downsample(values)
        values = self.prelu(self.bn2(self.conv1(self.bn1(values))))
        values = self.bn3(self.conv2(values))
        values += shortcut  # in place: no backward pass needs what the last batch norm gave
        return values


class IResNet(Backbone):
    """A stem, four stages of residual blocks, and a linear layer over the whole last feature map.

    In half precision the linear layer and the batch norm after it are computed in float32.

    :param blocks: residual blocks in each of the four stages.
    :param dropout: part of the last feature map that is dropped in training, 0 to 1.
    :param segments: into how many checkpointed segments each stage is cut; 0 for a stage without checkpoints.
    """

    def __init__(
        self,
        name: str,
        blocks: tuple[int, int, int, int],
        *,
        embedding_size: int,
        dropout: float,
        half_precision: torch.dtype | None,
        segments: tuple[int, int, int, int],
    ) -> None:
        super().__init__(name, embedding_size, half_precision)
        self.segments = segments
        self.conv1 = nn.Conv2d(3, CHANNELS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(CHANNELS[0])
        self.prelu = nn.PReLU(CHANNELS[0])
        self.layer1 = _stage(CHANNELS[0], CHANNELS[0], blocks[0])
        self.layer2 = _stage(CHANNELS[0], CHANNELS[1], blocks[1])
        self.layer3 = _stage(CHANNELS[1], CHANNELS[2], blocks[2])
        self.layer4 = _stage(CHANNELS[2], CHANNELS[3], blocks[3])
        self.bn2 = nn.BatchNorm2d(CHANNELS[3])
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(CHANNELS[3] * SIDE * SIDE, embedding_size)
        self.features = nn.BatchNorm1d(embedding_size)
        # A scale would be undone by the normalisation of embeddings; published files hold ones.
        self.features.weight.requires_grad_(False)

    def initialize(self, generator: torch.Generator | None) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, 0, 0.1, generator=generator)
            elif isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                reset_norm(module)
            elif isinstance(module, nn.PReLU):
                reset_prelu(module)
        reset_as_torch_does(self.fc, generator)

    def embed(self, pictures: Tensor) -> Tensor:
        with half_section(self.half_precision, pictures.device):
            values = self.prelu(self.bn1(self.conv1(pictures)))
            for number, stage in enumerate((self.layer1, self.layer2, self.layer3, self.layer4)):
                values = self._run(stage, values, self.segments[number])
            values = self.dropout(self.bn2(values).flatten(1))
        with full_section(pictures.device):
            return self.features(self.fc(at_least_float32(values)))

    def _run(self, stage: nn.Sequential, values: Tensor, segments: int) -> Tensor:
        if not segments or not self.training or not torch.is_grad_enabled():
            return stage(values)
        for segment in _segments(stage, segments):
            values = checkpointed(segment, values)
        return values


def _stage(inputs: int, outputs: int, blocks: int) -> nn.Sequential:
    first = ResidualBlock(inputs, outputs, 2, changes=True)
    return nn.Sequential(first, *(ResidualBlock(outputs, outputs, 1, changes=False) for _ in range(blocks - 1)))


def _segments(stage: nn.Sequential, count: int) -> Iterator[list[nn.Module]]:
    """Cut a stage into ``count`` segments whose lengths differ by at most one; fewer where it has fewer blocks."""
    blocks = list(stage)
    count = min(count, len(blocks))
    for number in range(count):
        yield blocks[number * len(blocks) // count : (number + 1) * len(blocks) // count]
