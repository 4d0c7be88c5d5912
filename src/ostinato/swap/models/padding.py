"""How many pixels are added on which side before a convolution."""

from __future__ import annotations


def same_padding(length: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after an axis, so that the output has ceil(length / stride) entries.

    An odd number of zeros puts the extra one behind. With kernel 5 and stride 2 on an even length that is (1, 2), which
    no symmetric padding gives.
    """
    outputs = -(-length // stride)
    total = max(0, (outputs - 1) * stride + kernel - length)
    return total // 2, total - total // 2


def reflection_padding(length: int, kernel: int, stride: int) -> tuple[int, int]:
    """Mirrored pixels before and after an axis; the border pixel itself is not repeated."""
    rest = length % stride
    total = max(kernel - (rest or stride), 0)
    return total // 2, total - total // 2
