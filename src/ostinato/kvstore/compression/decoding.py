"""Packed words back into numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from ostinato.errors import ArgumentValueError
from ostinato.kvstore.compression.scheme import CompressionScheme
from ostinato.kvstore.compression.tables import values_of_bytes

_BLOCK = 1 << 16
"""Bytes of words that are looked up at a time, so that what they decode to stays in the cache until it is added."""


def decode(scheme: CompressionScheme, packed: Tensor, elements: int) -> Tensor:
    """Give what ``packed`` stands for: (elements,) float32 on its device."""
    return add_decoded(scheme, packed, torch.zeros(elements, dtype=torch.float32, device=packed.device))


def add_decoded(scheme: CompressionScheme, packed: Tensor, total: Tensor) -> Tensor:
    """Add what ``packed`` stands for to ``total`` in place, and give ``total`` back.

    :param packed: (``scheme.packed_bytes(n)``,) uint8.
    :param total: (n,) float32, contiguous, on the same device.
    :raises ArgumentValueError: the sizes do not fit.
    """
    if packed.shape != (scheme.packed_bytes(len(total)),):
        raise ArgumentValueError(
            f"{len(total)} elements take {scheme.packed_bytes(len(total))} bytes as {scheme.type} words, and "
            f"{packed.numel()} came.",
            advice="Sender and receiver have to agree about the number of elements and the type of compression.",
        )
    per_byte = 8 // scheme.bits
    used = -(-len(total) // per_byte)
    if packed.device.type != "cpu":
        table = torch.from_numpy(values_of_bytes(scheme)).to(packed.device)
        return total.add_(table[packed[:used].int()].view(-1)[: len(total)])
    table, codes, sums = values_of_bytes(scheme), packed.numpy(), total.detach().numpy()
    for start in range(0, used, _BLOCK):
        values = table.take(codes[start : min(start + _BLOCK, used)], axis=0).reshape(-1)
        part = sums[start * per_byte : start * per_byte + len(values)]
        part += values[: len(part)]
    return total
