"""Compression one element at a time: slow and obvious. The fast code is held against it; it is the specification."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ostinato.kvstore.compression.scheme import CompressionScheme


def quantise_plainly(
    scheme: CompressionScheme, gradient: Sequence[float], residual: Sequence[float]
) -> tuple[bytes, list[float]]:
    """Give the packed words of ``gradient`` and the residual afterwards.

    :param gradient: float32 values.
    :param residual: as many float32 values, all finite.
    """
    threshold = np.float32(scheme.threshold)
    packed = bytearray(scheme.packed_bytes(len(gradient)))
    after: list[float] = []
    for number, (kept, came) in enumerate(zip(residual, gradient, strict=True)):
        with np.errstate(over="ignore", invalid="ignore"):
            r = np.float32(kept) + np.float32(came)
        if scheme.type == "2bit":
            if r >= threshold:
                code, value = 0b11, threshold
            elif r <= -threshold:
                code, value = 0b10, -threshold
            else:
                code, value = 0b00, np.float32(0)
        elif r > threshold:
            code, value = 1, np.float32(1)
        else:
            code, value = 0, np.float32(-1)
        after.append(float(r - value) if math.isfinite(r) else 0.0)
        # Elements go through a byte from its most significant end, and through the bytes in the order of memory.
        byte, place = divmod(number, 8 // scheme.bits)
        packed[byte] |= code << (8 - scheme.bits * (place + 1))
    return bytes(packed), after


def decode_plainly(scheme: CompressionScheme, packed: bytes, elements: int) -> list[float]:
    """Give the values that ``elements`` packed elements stand for."""
    values = {0b11: scheme.quantum, 0b10: -scheme.quantum} if scheme.type == "2bit" else {1: 1.0, 0: -1.0}
    decoded = []
    for number in range(elements):
        byte, place = divmod(number, 8 // scheme.bits)
        code = packed[byte] >> (8 - scheme.bits * (place + 1)) & (2**scheme.bits - 1)
        decoded.append(values.get(code, 0.0))
    return decoded
