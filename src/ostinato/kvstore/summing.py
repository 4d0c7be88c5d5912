"""Sums over the replicas of one process, in the order that the stores promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from ostinato.kvstore.store import Value
from ostinato.optim.row_sparse_gradient import RowSparse

_AT_ONCE = 4


def as_value(value: Value) -> Value:
    """Give a ``torch.sparse_coo`` tensor as its rows; everything else as it is."""
    if isinstance(value, Tensor) and value.layout == torch.sparse_coo:
        return RowSparse.from_coo(value)
    return value


def sum_values(values: Sequence[Value], device: torch.device, *, in_fours: bool = False) -> Value:
    """Add up one value for each replica. What is given back shares no memory with them.

    Row-sparse values give the union of their rows; beside a dense value they are made dense.

    :param values: at least one.
    :param device: where to add up, and where the sum lies.
    :param in_fours: add the second to fifth first, and so on by fours, as the host's store does; otherwise from left to
        right. The order matters for rounding only.
    """
    plain = [as_value(value) for value in values]
    if all(isinstance(value, RowSparse) for value in plain):
        return _sum_rows([cast(RowSparse, value) for value in plain], device)
    dense = [value.to_dense() if isinstance(value, RowSparse) else value.detach() for value in plain]
    total = dense[0].to(device, copy=True, memory_format=torch.contiguous_format)
    if not in_fours:
        for value in dense[1:]:
            total += value.to(device)
        return total
    for start in range(1, len(dense), _AT_ONCE):
        part = dense[start].to(device)
        for value in dense[start + 1 : start + _AT_ONCE]:
            part = part + value.to(device)
        total += part
    return total


def _sum_rows(values: Sequence[RowSparse], device: torch.device) -> RowSparse:
    first = values[0]
    if len(values) == 1:
        return RowSparse(first.indices.to(device, copy=True), first.values.to(device, copy=True), first.shape)
    indices = torch.cat([value.indices.to(device) for value in values])
    rows = torch.cat([value.values.to(device) for value in values])
    return RowSparse.from_rows(indices, rows, first.shape)


def write_value(value: Value, outputs: Sequence[Tensor]) -> None:
    """Copy a value to every output. A ``torch.sparse_coo`` output takes the rows of a row-sparse value."""
    with torch.no_grad():
        for output in outputs:
            if isinstance(value, RowSparse):
                # Not through detach(): of a sparse tensor it is another one, with a list of rows of its own.
                plain = value.to_coo() if output.layout == torch.sparse_coo else value.to_dense()
                output.copy_(plain.to(output.device))
            else:
                output.copy_(value)
