"""First values of layers, drawn from a given generator instead of always from the global one."""

from __future__ import annotations

import math

import torch
from torch import nn


def reset_norm(norm: nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm) -> None:
    """Weight 1, bias 0; running mean 0, running variance 1, no batches counted."""
    norm.reset_parameters()


def reset_prelu(prelu: nn.PReLU) -> None:
    """A slope of 0.25."""
    nn.init.constant_(prelu.weight, 0.25)


def reset_as_torch_does(layer: nn.Linear | nn.Conv2d, generator: torch.Generator | None) -> None:
    """Uniform weights and bias, bounded by 1 / sqrt(inputs of one output), which is PyTorch's own choice."""
    bound = 1 / math.sqrt(layer.weight[0].numel())
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    if layer.bias is not None:
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
