"""Losses that compare pixel by pixel."""

from __future__ import annotations

from torch import Tensor


def mean_absolute_map(target: Tensor, prediction: Tensor) -> Tensor:
    """``mae``: |P - T|, element by element."""
    return (prediction - target).abs()


def mean_squared_map(target: Tensor, prediction: Tensor) -> Tensor:
    """``mse``: (P - T)^2, element by element."""
    return (prediction - target).square()
