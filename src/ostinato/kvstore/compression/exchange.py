"""Sums of compressed gradients over ranks. Packed words cannot be added, so they are decoded before."""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from ostinato.kvstore.collective_calls import Collectives, Pending
from ostinato.kvstore.compression.decoding import add_decoded
from ostinato.kvstore.compression.scheme import WORD_BYTES, CompressionScheme

Route = Literal["all_gather", "all_to_all"]
"""How compressed gradients travel:

``all_gather``
    every rank receives the words of all ranks, decodes them and adds them up;
``all_to_all``
    every rank receives the words of its own slice, decodes them and adds them up; the sums then travel as float32,
    which is what a parameter server with compression towards the server does.

Both add the ranks up in rank order, so they give the same bits.
"""


class PendingSum(Protocol):
    """A sum that is on its way."""

    def finish(self, total: Tensor) -> Tensor:
        """Wait, and put the sum over ranks into ``total``: (elements,) float32."""
        ...


def cheaper_route(scheme: CompressionScheme, size: int) -> Route:
    """The route on which a rank receives fewer bytes: gathering words up to 16 ranks (2bit) or 32 (1bit)."""
    gathered = (size - 1) / scheme.elements_per_word
    sliced = (size - 1) / size * (1 + 1 / scheme.elements_per_word)
    return "all_gather" if gathered <= sliced else "all_to_all"


def begin_sum(
    scheme: CompressionScheme, packed: Tensor, elements: int, collectives: Collectives, route: Route
) -> PendingSum:
    """Start to add up what the ranks have packed. A collective; so is ``finish``, in the same order.

    :param packed: this rank's words; not to be changed before ``finish``.
    :param elements: how many elements they hold, the same on all ranks.
    """
    if route == "all_gather":
        return _Gathered(scheme, packed, collectives)
    return _Sliced(scheme, packed, elements, collectives)


class _Gathered:
    def __init__(self, scheme: CompressionScheme, packed: Tensor, collectives: Collectives) -> None:
        self._scheme = scheme
        self._own = packed
        self._words = packed.new_empty(collectives.size * len(packed))
        self._size = collectives.size
        self._running: Pending = collectives.all_gather(self._words, packed)

    def finish(self, total: Tensor) -> Tensor:
        self._running.wait()
        total.zero_()
        for words in self._words.view(self._size, -1):
            add_decoded(self._scheme, words, total)
        return total


class _Sliced:
    """Cut at word borders into equal slices, the last one filled up with empty words."""

    def __init__(self, scheme: CompressionScheme, packed: Tensor, elements: int, collectives: Collectives) -> None:
        self._scheme = scheme
        self._collectives = collectives
        self._elements = elements
        slice_words = -(-scheme.words(elements) // collectives.size)
        self._slice_elements = slice_words * scheme.elements_per_word
        self._sent = pad(packed, (0, slice_words * WORD_BYTES * collectives.size - len(packed)))
        self._received = torch.empty_like(self._sent)
        self._running = collectives.all_to_all(self._received, self._sent)

    def finish(self, total: Tensor) -> Tensor:
        self._running.wait()
        own = total.new_zeros(self._slice_elements)
        for words in self._received.view(self._collectives.size, -1):
            add_decoded(self._scheme, words, own)
        whole = total.new_empty(self._slice_elements * self._collectives.size)
        self._collectives.all_gather(whole, own).wait()
        return total.copy_(whole[: self._elements])
