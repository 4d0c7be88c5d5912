"""Gradients into packed words by tensor operations that a compiler makes one kernel of."""

from __future__ import annotations

import logging
import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ostinato.kvstore.compression.scheme import WORD_BYTES, CompressionScheme

_log = logging.getLogger(__name__)

_NOT_COMPILED: set[str] = set()
"""The types of devices for which compiling was found to be impossible."""


def quantise_in_one_pass(
    scheme: CompressionScheme, gradient: Tensor, residual: Tensor, packed: Tensor, *, compiled: bool | None = None
) -> None:
    """What :func:`~ostinato.kvstore.compression.quantise` does away from a CPU, correct on every device.

    The elements lie in rows of one word each, and the bits of a row are added up. So what is written for every element
    (its residual) and what is written for every row (its word) run over the same elements in the same order, and
    ``torch.compile`` puts them in one kernel that reads gradient and residual once. That it is one was counted on what
    inductor fuses by its rules for Triton, in a graph on a CPU; it has not been run on a GPU. Elements that fill no
    word are done apart, by a handful of operations on at most 31 numbers.

    Compiling happens on the first use and takes some seconds; it serves all sizes, and is done once more when a second
    threshold comes. Where it is impossible (there is no Triton, say) the same operations run one by one, with the same
    results, and one warning says so. They need about 20 bytes an element for a moment.

    :param gradient: (n,) float32, contiguous; not changed.
    :param residual: (n,) float32, contiguous; changed in place.
    :param packed: (``scheme.packed_bytes(n)``,) uint8; filled.
    :param compiled: whether to compile; by default everywhere but on a CPU.
    """
    elements = scheme.elements_per_word
    whole = len(gradient) // elements
    words = _words_in(packed)
    if whole:
        first = whole * elements
        rows = (gradient[:first].view(whole, elements), residual[:first].view(whole, elements), words[:whole])
        # The compiler takes a size of one for another program than all other sizes, which is not worth the time.
        wanted = whole > 1 and (gradient.device.type != "cpu" if compiled is None else compiled)
        if not (wanted and _run_compiled(scheme, *rows)):
            _STEPS[scheme.type](*rows, scheme.threshold)
    if rest := len(gradient) - whole * elements:
        # No comparison with NaN holds, so the unused elements of the last word have the code 0.
        last = gradient.new_full((2, 1, elements), math.nan)
        last[0, 0, :rest] = gradient[-rest:]
        last[1, 0, :rest] = residual[-rest:]
        _STEPS[scheme.type](last[0], last[1], words[whole:], scheme.threshold)
        residual[-rest:] = last[1, 0, :rest]
    if words.data_ptr() != packed.data_ptr():
        packed.copy_(words.view(torch.uint8))


def _words_in(packed: Tensor) -> Tensor:
    """The words of ``packed`` as int32 in the same memory; new memory where they cannot be addressed as such."""
    is_aligned = packed.is_contiguous() and packed.storage_offset() % WORD_BYTES == 0
    return (packed if is_aligned else packed.new_empty(len(packed))).view(torch.int32)


def _run_compiled(scheme: CompressionScheme, gradient: Tensor, residual: Tensor, words: Tensor) -> bool:
    """Whether it was possible; where it was not, nothing is changed."""
    kind = gradient.device.type
    if kind in _NOT_COMPILED:
        return False
    try:
        step = _compiled(scheme.type)
        for tensor in (gradient, residual, words):
            torch._dynamo.maybe_mark_dynamic(tensor, 0)  # from the first size on: one program for all sizes
        with torch.no_grad():  # the caller's mode would be a reason to compile again
            step(gradient, residual, words, scheme.threshold)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler and what it calls may raise, before anything runs
        _NOT_COMPILED.add(kind)
        _log.warning(
            "Gradient compression cannot be compiled for %s here (%s: %s). It runs as single tensor operations, more "
            "slowly, with the same results.",
            kind,
            type(error).__name__,
            (str(error).strip() or "no reason given").splitlines()[0],
        )
        return False
    return True


@lru_cache(maxsize=2)
def _compiled(type: str) -> Any:
    return torch.compile(_STEPS[type], fullgraph=True)


# Each of the two is a function of its own, since the compiler would take the length of a row for variable otherwise.


def _step_of_2bit(gradient: Tensor, residual: Tensor, words: Tensor, threshold: float) -> None:
    """Rows of 16 elements, (m, 16) float32, into (m,) words of int32; the residual is changed in place."""
    r = residual + gradient
    plus, minus = r >= threshold, r <= -threshold
    codes = (plus | minus).to(torch.int32) * 2 + plus.to(torch.int32)
    words.copy_((codes << _places(r, 2)).sum(1, dtype=torch.int32))
    residual.copy_(_finite(r - (plus.to(r.dtype) - minus.to(r.dtype)) * threshold))


def _step_of_1bit(gradient: Tensor, residual: Tensor, words: Tensor, threshold: float) -> None:
    """Rows of 32 elements, (m, 32) float32, into (m,) words of int32; the residual is changed in place."""
    r = residual + gradient
    plus = r > threshold
    words.copy_((plus.to(torch.int32) << _places(r, 1)).sum(1, dtype=torch.int32))
    residual.copy_(_finite(r - (plus.to(r.dtype) * 2 - 1)))


_STEPS = {"2bit": _step_of_2bit, "1bit": _step_of_1bit}


def _places(rows: Tensor, bits: int) -> Tensor:
    """How far each element's code is shifted in its word, whose first byte is the least significant one.

    Within a byte the first element has the most significant bits.
    """
    place = torch.arange(rows.shape[1], dtype=torch.int32, device=rows.device)
    in_byte = 8 // bits
    return place // in_byte * 8 + (8 - bits) - bits * (place % in_byte)


def _finite(residual: Tensor) -> Tensor:
    return torch.where(torch.isfinite(residual), residual, torch.zeros_like(residual))
