"""Norms of whole weights from their pieces, and pieces multiplied by a number of their weight."""

from __future__ import annotations

import torch
from torch import Tensor


class PieceNorms:
    """2-norms of several weights that come in pieces.

    Nothing is read back from the device. Squares are summed in float64, where the device has it.

    :param weights: how many weights there are.
    """

    def __init__(self, weights: int, device: torch.device) -> None:
        dtype = torch.float32 if device.type == "mps" else torch.float64
        self._squares = torch.zeros(weights, dtype=dtype, device=device)

    def add(self, weights: list[int], pieces: list[Tensor] | tuple[Tensor, ...]) -> None:
        """Take pieces in, each of the weight with this number."""
        norms = torch.stack(torch._foreach_norm(pieces)).to(self._squares.dtype)
        self._squares.index_add_(0, torch.tensor(weights, device=norms.device), norms * norms)

    def result(self) -> Tensor:
        """Give the norm of each weight."""
        return self._squares.sqrt()


def multiplied(pieces: list[Tensor], factors: Tensor, weights: list[int]) -> list[Tensor]:
    """Give each piece times the factor of its weight, as new tensors."""
    if factors.device.type == "cpu":
        numbers = factors.tolist()
        return list(torch._foreach_mul(pieces, [numbers[weight] for weight in weights]))
    numbers = factors.to(pieces[0].dtype).unbind()  # numbers that stay on the device: nobody waits for them
    return list(torch._foreach_mul(pieces, [numbers[weight] for weight in weights]))


def trust_ratio(weight_norms: Tensor, change_norms: Tensor, lower: float | None, upper: float | None) -> Tensor:
    """``r1/r2``, or 1 where either is 0; r1 is the weight's norm within its bounds.

    A bound of None or 0 is none.
    """
    bounded = weight_norms
    if lower:
        bounded = bounded.clamp(min=lower)
    if upper:
        bounded = bounded.clamp(max=upper)
    return torch.where((bounded == 0) | (change_norms == 0), 1.0, bounded / change_norms)
