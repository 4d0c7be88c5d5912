"""Rows of tables, exchanged between ranks. A rank without rows takes part with none."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from ostinato.kvstore.collective_calls import Collectives
from ostinato.optim.row_sparse_gradient import RowSparse


def sum_of_rows(rows: RowSparse, collectives: Collectives) -> RowSparse:
    """The sum over ranks, on every rank, with the same bits everywhere. A collective.

    What travels are all ranks' rows, filled up to the longest list: good while the ranks together touch few rows.
    """
    if collectives.size == 1:
        return rows
    counts = _gather_counts(len(rows.indices), rows.indices.device, collectives)
    longest = max(counts)
    if longest == 0:
        return rows
    indices = rows.indices.new_zeros(longest)
    values = rows.values.new_zeros((longest, *rows.shape[1:]))
    indices[: len(rows.indices)] = rows.indices
    values[: len(rows.indices)] = rows.values
    all_indices = indices.new_empty(longest * collectives.size)
    all_values = values.new_empty((longest * collectives.size, *rows.shape[1:]))
    travelling = [collectives.all_gather(all_indices, indices), collectives.all_gather(all_values, values)]
    for one in travelling:
        one.wait()
    parts = [
        RowSparse(i[:count], v[:count], rows.shape)
        for i, v, count in zip(all_indices.split(longest), all_values.split(longest), counts, strict=True)
    ]
    return add_rows(parts)


def add_rows(parts: list[RowSparse]) -> RowSparse:
    """The sum of row-sparse values, added in the order given; each of them lists a row once.

    One part after the other, so that no two of its rows meet in one addition: the result does not depend on the order
    in which a device happens to add.
    """
    first = parts[0]
    indices, places = torch.unique(torch.cat([part.indices for part in parts]), return_inverse=True)
    total = first.values.new_zeros((len(indices), *first.shape[1:]))
    for part, place in zip(parts, places.split([len(part.indices) for part in parts]), strict=True):
        total.index_add_(0, place, part.values)
    return RowSparse(indices, total, first.shape)


def rows_to_owners(rows: RowSparse, borders: list[int], collectives: Collectives) -> RowSparse:
    """Send every row to the rank in whose range it lies, and add up there. A collective.

    :param borders: ``size + 1`` row numbers; rank k owns the rows from ``borders[k]`` up to ``borders[k + 1]``.
    :returns: the sum of this rank's own rows, numbered in the whole table.
    """
    counts = _counts_per_owner(rows.indices, borders)
    received = _exchange_counts(counts, rows.indices.device, collectives)
    indices = rows.indices.new_empty(sum(received))
    values = rows.values.new_empty((sum(received), *rows.shape[1:]))
    travelling = [
        collectives.all_to_all(indices, rows.indices.contiguous(), received, counts),
        collectives.all_to_all(values, rows.values.contiguous(), received, counts),
    ]
    for one in travelling:
        one.wait()
    parts = [RowSparse(i, v, rows.shape) for i, v in zip(indices.split(received), values.split(received), strict=True)]
    return add_rows(parts)


def rows_from_owners(
    wanted: Tensor, read: Callable[[Tensor], Tensor], borders: list[int], collectives: Collectives
) -> Tensor:
    """Fetch rows from the ranks that own them. A collective; a rank may want none.

    :param wanted: (n,) int64, ascending, in range, on the device of ``own``.
    :param own: this rank's rows of the table, (rows, \\*row shape).
    :returns: (n, \\*row shape).
    """
    counts = _counts_per_owner(wanted, borders)
    asked = _exchange_counts(counts, wanted.device, collectives)
    asked_indices = wanted.new_empty(sum(asked))
    collectives.all_to_all(asked_indices, wanted.contiguous(), asked, counts).wait()
    answers = read(asked_indices - borders[collectives.rank])
    received = answers.new_empty((len(wanted), *answers.shape[1:]))
    collectives.all_to_all(received, answers, counts, asked).wait()
    return received


def row_borders(rows: int, size: int) -> list[int]:
    """Cut a number of rows into nearly equal ranges: border k is ``rows / size * k`` with halves rounded up."""
    return [(2 * rows * k + size) // (2 * size) for k in range(size + 1)]


def _counts_per_owner(indices: Tensor, borders: list[int]) -> list[int]:
    cuts = torch.searchsorted(indices, torch.tensor(borders, device=indices.device)).tolist()
    return [after - before for before, after in itertools.pairwise(cuts)]


def _gather_counts(count: int, device: torch.device, collectives: Collectives) -> list[int]:
    counts = torch.empty(collectives.size, dtype=torch.int64, device=device)
    collectives.all_gather(counts, torch.tensor([count], device=device)).wait()
    return counts.tolist()


def _exchange_counts(counts: list[int], device: torch.device, collectives: Collectives) -> list[int]:
    received = torch.empty(collectives.size, dtype=torch.int64, device=device)
    collectives.all_to_all(received, torch.tensor(counts, device=device)).wait()
    return received.tolist()
