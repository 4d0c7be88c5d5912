"""MobileFaceNet: depth-wise convolutions, for phones and for machines without a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ostinato.recognition.backbones.backbone import Backbone
from ostinato.recognition.backbones.checkpointing import checkpointed
from ostinato.recognition.backbones.first_values import reset_norm, reset_prelu
from ostinato.recognition.backbones.precision import at_least_float32, full_section, half_section

LAST_CHANNELS = 512


class ConvolutionBlock(nn.Module):
    """Convolution without bias, batch norm, and PReLU unless it is ``linear``."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        linear: bool = False,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        if not linear:
            layers.append(nn.PReLU(outputs))
        self.layers = nn.Sequential(*layers)

    def forward(self, values: Tensor) -> Tensor:
        """``[B, inputs, H, W]`` to ``[B, outputs, H', W']``, as the convolution has it."""
        return self.layers(values)


class DepthWise(nn.Module):
    """Widen to ``width`` channels, convolve each of them alone, and narrow again.

    :param residual: add what came in to what goes out.
    """

    def __init__(self, inputs: int, outputs: int, width: int, *, stride: int, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.layers = nn.Sequential(
            ConvolutionBlock(inputs, width, 1),
            ConvolutionBlock(width, width, 3, stride=stride, padding=1, groups=width),
            ConvolutionBlock(width, outputs, 1, linear=True),
        )

    def forward(self, values: Tensor) -> Tensor:
        """``[B, inputs, H, W]`` to ``[B, outputs, H / stride, W / stride]``."""
        return values + self.layers(values) if self.residual else self.layers(values)


class ResidualStage(nn.Module):
    """Several residual :class:`DepthWise` blocks of the same size."""

    def __init__(self, channels: int, blocks: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(DepthWise(channels, channels, width, stride=1, residual=True) for _ in range(blocks))
        )

    def forward(self, values: Tensor) -> Tensor:
        """``[B, channels, H, W]``, in and out."""
        return self.layers(values)


class EmbeddingHead(nn.Module):
    """A depth-wise convolution over the whole feature map, a linear layer without bias and a batch norm."""

    def __init__(self, embedding_size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            ConvolutionBlock(LAST_CHANNELS, LAST_CHANNELS, 7, groups=LAST_CHANNELS, linear=True),
            nn.Flatten(),
            nn.Linear(LAST_CHANNELS, embedding_size, bias=False),
            nn.BatchNorm1d(embedding_size),
        )

    def forward(self, values: Tensor) -> Tensor:
        """``[B, 512, 7, 7]`` to ``[B, embedding_size]``."""
        return self.layers(values)


class MobileFaceNet(Backbone):
    """MobileFaceNet. In half precision everything from ``conv_sep`` on is computed in float32.

    :param blocks: residual blocks at 56, 28, 14 and 7 pixels.
    :param scale: channels in units of 64. Files from before 22 July 2021 have scale 1.
    :param checkpointing: compute every stage again for the backward pass, to save memory.
    """

    def __init__(
        self,
        name: str,
        blocks: tuple[int, int, int, int],
        *,
        scale: int,
        embedding_size: int,
        half_precision: torch.dtype | None,
        checkpointing: bool,
    ) -> None:
        super().__init__(name, embedding_size, half_precision)
        self.checkpointing = checkpointing
        width = 64 * scale
        self.layers = nn.ModuleList(
            [
                ConvolutionBlock(3, width, 3, stride=2, padding=1),
                ConvolutionBlock(width, width, 3, padding=1, groups=64)
                if blocks[0] == 1
                else ResidualStage(width, blocks[0], 128),
                DepthWise(width, width, 128, stride=2, residual=False),
                ResidualStage(width, blocks[1], 128),
                DepthWise(width, 2 * width, 256, stride=2, residual=False),
                ResidualStage(2 * width, blocks[2], 256),
                DepthWise(2 * width, 2 * width, 512, stride=2, residual=False),
                ResidualStage(2 * width, blocks[3], 256),
            ]
        )
        self.conv_sep = ConvolutionBlock(2 * width, LAST_CHANNELS, 1)
        self.features = EmbeddingHead(embedding_size)

    def initialize(self, generator: torch.Generator | None) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
            elif isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                reset_norm(module)
            elif isinstance(module, nn.PReLU):
                reset_prelu(module)

    def embed(self, pictures: Tensor) -> Tensor:
        checkpoints = self.checkpointing and self.training and torch.is_grad_enabled()
        values = pictures
        with half_section(self.half_precision, pictures.device):
            for stage in self.layers:
                values = checkpointed([stage], values) if checkpoints else stage(values)
        with full_section(pictures.device):
            return self.features(self.conv_sep(at_least_float32(values)))
