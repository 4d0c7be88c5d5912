"""An array that lies on servers: where its parts are, and how it and its optimizer state are cut and put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ostinato.kvstore.compression import CompressionScheme
from ostinato.kvstore.row_sparse_tables import big_array_bound
from ostinato.kvstore.saved_leaves import Leaf, changed, element_range, is_flat, read_whole, row_range, size_of
from ostinato.kvstore.server_placement import Part, place_elements, place_rows, place_whole, place_words


@dataclass(frozen=True)
class Placed:
    """Where an array lies."""

    shape: torch.Size
    dtype: torch.dtype
    parts: tuple[Part, ...]
    by_rows: bool
    """Parts are ranges of rows; else of elements, flat."""
    is_table: bool

    @property
    def lines(self) -> int:
        """Rows where parts are ranges of rows, elements where they are ranges of elements."""
        return self.shape[0] if self.by_rows else self.shape.numel()

    def piece(self, part: Part, whole: Tensor) -> Tensor:
        """What a part holds of an array, a view; a single part holds it in its own shape."""
        if len(self.parts) == 1:
            return whole
        lines = whole if self.by_rows else whole.reshape(-1)
        return lines[part.start : part.start + part.length]

    def overlaps(self, first: int, last: int) -> list[tuple[Part, int, int]]:
        """The parts that hold lines ``first`` to ``last`` (not included), each with its own lines of these, numbered in
        the part. Without lines, the first part with none of its."""
        found = []
        for part in self.parts:
            begin, end = max(first, part.start), min(last, part.start + part.length)
            if begin < end:
                found.append((part, begin - part.start, end - part.start))
        return found or [(self.parts[0], 0, 0)]

    def join(self, pieces: Sequence[tuple[int, Any]]) -> Any:
        """Put the servers' states of stretches of one array together, in their order.

        :param pieces: number of lines, and state.
        """
        first = pieces[0][1]
        if len(self.parts) == 1:
            return first

        def joined(name: str, leaf: Any) -> Any:
            if not isinstance(leaf, Tensor) or not leaf.ndim or len(leaf) != pieces[0][0]:
                return leaf
            return torch.cat([state[name] for _, state in pieces])

        return {name: joined(name, leaf) for name, leaf in first.items()}

    def shaped(self, state: Any) -> Any:
        """A state that was put together, with what belongs to the elements in the array's own shape."""
        if len(self.parts) == 1 or self.by_rows:
            return state
        return changed(state, lambda leaf: read_whole(leaf, self.shape))

    def cut(self, part: Part, state: Any) -> Any:
        """A server's part of a saved state, whole or in parts."""
        if len(self.parts) == 1:
            return changed(state, lambda leaf: read_whole(leaf, self.shape))
        return changed(state, lambda leaf: self._cut_leaf(part, leaf))

    def cut_rows(self, part: Part, saved: Leaf) -> Tensor:
        """A server's part of a saved array."""
        if len(self.parts) == 1:
            return read_whole(saved, self.shape)
        last = part.start + part.length
        if self.by_rows:
            return row_range(saved, self.shape, part.start, last)
        return element_range(saved, part.start, last)

    def _cut_leaf(self, part: Part, leaf: Leaf) -> Tensor:
        has_lines = len(leaf.shape) > 0 and (
            leaf.shape[0] == self.shape[0] or is_flat(leaf, self.shape)
            if self.by_rows
            else size_of(leaf) == self.shape.numel()
        )
        return self.cut_rows(part, leaf) if has_lines else read_whole(leaf)


def placed_value(
    number: int, value: Tensor, servers: int, *, rule: str, scheme: CompressionScheme | None, is_table: bool
) -> Placed:
    """Where the parts of a new key lie.

    :param number: of the key, from 0.
    :param rule: where the optimizer lets a weight be cut: see :attr:`~ostinato.optim.rules.Optimizer.cut`.
    :param scheme: how its gradients are compressed.
    :param is_table: its rows are pulled one by one.
    """
    bound, elements = big_array_bound(), value.numel()
    rows = len(value) if value.ndim else 0
    # Words and rows have no common borders.
    compresses_rows = scheme is not None and rule == "rows" and not is_table
    if rule == "tensors" or rows == 0 or compresses_rows:
        parts = place_whole(number, rows or elements, servers)
        return Placed(value.shape, value.dtype, tuple(parts), by_rows=rows > 0, is_table=is_table)
    if scheme is not None and not is_table:
        parts = place_words(number, elements, servers, bound, scheme)
        return Placed(value.shape, value.dtype, tuple(parts), by_rows=False, is_table=False)
    if rows >= servers or rule == "rows" or is_table:
        parts = place_rows(number, rows, elements // rows, servers, bound)
        return Placed(value.shape, value.dtype, tuple(parts), by_rows=True, is_table=is_table)
    parts = place_elements(number, elements, servers, bound)
    return Placed(value.shape, value.dtype, tuple(parts), by_rows=False, is_table=False)
