"""Gradients into packed words, fast, with what the words cannot say kept in the residual."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore.compression.one_pass import quantise_in_one_pass
from ostinato.kvstore.compression.scheme import CompressionScheme
from ostinato.kvstore.compression.tables import doubled_bits, values_of_bytes

_BLOCK = 1 << 16
"""Elements that are worked on at a time on a CPU, a multiple of every word: all temporaries together (about 0.7 MB)
stay in a core's own cache. The times are in ``benchmarks/compression.py``."""


def quantise(scheme: CompressionScheme, gradient: Tensor, residual: Tensor, packed: Tensor | None = None) -> Tensor:
    """Give the packed words of ``gradient`` and leave in ``residual`` what they do not say.

    On a CPU this goes block by block through numpy, whose comparisons, ``packbits`` and table look-ups reach more than
    1 GB of float32 a second on one core. Elsewhere tensor operations do it, which are compiled to one kernel on the
    first use where that is possible, see :mod:`~ostinato.kvstore.compression.one_pass`; nothing waits for the device.
    Memory: nothing beyond ``packed``, but about 20 bytes an element where the operations cannot be compiled.

    :param gradient: (n,) float32, contiguous; not changed.
    :param residual: (n,) float32, contiguous, on the same device; changed in place. All finite before and after.
    :param packed: where to put the words: (``scheme.packed_bytes(n)``,) uint8; made here if left out.
    :returns: ``packed``, which no longer depends on ``gradient``.
    :raises ArgumentTypeError: the gradient or the residual is not float32.
    :raises ArgumentValueError: their sizes or devices differ, or ``packed`` has not the exact size.
    """
    _check(gradient, residual)
    size = scheme.packed_bytes(len(gradient))
    if packed is None:
        packed = torch.empty(size, dtype=torch.uint8, device=gradient.device)
    elif packed.shape != (size,) or packed.dtype != torch.uint8:
        raise ArgumentValueError(
            f"{len(gradient)} elements take {size} bytes as {scheme.type} words, and there is room for "
            f"{packed.numel()} values of {packed.dtype}.",
            advice="Leave packed out, or give a uint8 tensor of exactly that size.",
        )
    if gradient.device.type == "cpu":
        _quantise_in_blocks(scheme, gradient.detach().numpy(), residual.detach().numpy(), packed.numpy())
    else:
        quantise_in_one_pass(scheme, gradient.detach(), residual.detach(), packed)
    return packed


def is_finite(gradient: Tensor) -> Tensor:
    """Whether every element is a finite number, as a bool tensor without dimensions: nothing waits for a device.

    Compressed gradients are always finite, so this has to be asked before they are compressed.
    """
    # One fast pass that makes no copy: a sum of squares is finite unless an element is not, or the sum overflows.
    if gradient.device.type != "cpu":
        return torch.isfinite(gradient).all()
    flat = gradient.detach().reshape(-1)
    return torch.tensor(bool(torch.isfinite(torch.dot(flat, flat))) or bool(torch.isfinite(flat).all()))


def _check(gradient: Tensor, residual: Tensor) -> None:
    for what, tensor in (("gradient", gradient), ("residual", residual)):
        if tensor.dtype != torch.float32:
            raise ArgumentTypeError(
                f"Gradient compression takes float32, and this {what} is {str(tensor.dtype).removeprefix('torch.')}.",
                advice="Widen gradients with .float() before they are pushed, or switch compression off.",
                dtype=tensor.dtype,
            )
    if gradient.ndim != 1 or gradient.shape != residual.shape or gradient.device != residual.device:
        raise ArgumentValueError(
            f"A gradient of shape {tuple(gradient.shape)} on {gradient.device} does not go with a residual of shape "
            f"{tuple(residual.shape)} on {residual.device}.",
            advice="Both are flat, equally long and on one device.",
        )
    if not gradient.is_contiguous() or not residual.is_contiguous():
        raise ArgumentValueError("A gradient that is compressed, and its residual, are contiguous.")


def _quantise_in_blocks(
    scheme: CompressionScheme,
    gradient: npt.NDArray[np.float32],
    residual: npt.NDArray[np.float32],
    packed: npt.NDArray[np.uint8],
) -> None:
    block = min(_BLOCK, scheme.words(len(gradient)) * scheme.elements_per_word)
    decoded = np.empty(block, np.float32)
    answers = np.empty((2, block), bool)
    for start in range(0, len(gradient), _BLOCK):
        r = residual[start : start + _BLOCK]
        words = packed[scheme.packed_bytes(start) : scheme.packed_bytes(start + len(r))]
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is dealt with below
            np.add(r, gradient[start : start + _BLOCK], out=r)
            unpacked = _pack_block(scheme, r, words, answers[:, : len(r)], decoded)
            np.subtract(r, unpacked, out=r)
            if not np.isfinite(np.dot(r, r)):
                r[~np.isfinite(r)] = 0


def _pack_block(
    scheme: CompressionScheme,
    r: npt.NDArray[np.float32],
    words: npt.NDArray[np.uint8],
    answers: npt.NDArray[np.bool_],
    decoded: npt.NDArray[np.float32],
) -> npt.NDArray[np.float32]:
    """Fill ``words`` from ``r`` and give the values they stand for, without the unused elements of the last one."""
    threshold = np.float32(scheme.threshold)
    if scheme.type == "2bit":
        np.greater_equal(r, threshold, out=answers[0])
        np.less_equal(r, -threshold, out=answers[1])
        plus, minus = doubled_bits()
        pairs = plus.take(np.packbits(answers[0]))
        pairs |= minus.take(np.packbits(answers[1]))
        codes = pairs.view(np.uint8)
    else:
        np.greater(r, threshold, out=answers[0])
        codes = np.packbits(answers[0])
    words[: len(codes)] = codes
    words[len(codes) :] = 0
    values = values_of_bytes(scheme)
    used = -(-len(r) * scheme.bits // 8)
    # 'clip' is never needed for a byte in a table of 256; it spares numpy a copy that guards against errors half-way.
    values.take(words[:used], axis=0, out=decoded[: used * values.shape[1]].reshape(used, -1), mode="clip")
    return decoded[: len(r)]
