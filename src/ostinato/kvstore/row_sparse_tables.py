"""Tables whose rows are pulled one by one: whole on every rank while they are small, cut by row ranges when large."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore.collective_calls import Collectives
from ostinato.kvstore.row_sparse_exchange import row_borders, rows_from_owners, rows_to_owners, sum_of_rows
from ostinato.kvstore.saved_leaves import Leaf, changed, is_flat, read_whole, row_range
from ostinato.kvstore.store import Key
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Updater
from ostinato.runs.row_cut import RowCut

ROWS_FILE, STATES_FILE = "table_rows", "table_states"
"""What the files begin with to which ranks save their rows of tables, and the optimizer states of these."""

BOUND_VARIABLE = "MXNET_KVSTORE_BIGARRAY_BOUND"
DEFAULT_BOUND = 1_000_000


def big_array_bound() -> int:
    """From how many elements on an array is cut over ranks or servers: the environment's word, or a million.

    :raises ArgumentValueError: the environment says something that is no number above 0.
    """
    text = os.environ.get(BOUND_VARIABLE, str(DEFAULT_BOUND))
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentValueError(
            f"The environment variable {BOUND_VARIABLE} is {text!r}.", advice="Set it to a number of elements above 0."
        )
    return int(text)


def require_row_ids(label: str, row_ids: Any) -> None:
    """Refuse row numbers that are no tensor of integers.

    :param label: what messages call the table.
    :raises ArgumentTypeError: these are none.
    """
    if not isinstance(row_ids, Tensor) or row_ids.is_floating_point() or row_ids.dtype == torch.bool:
        kind = row_ids.dtype if isinstance(row_ids, Tensor) else type(row_ids).__name__
        raise ArgumentTypeError(
            f"Rows of {label} are asked for by a tensor of integers, not by {kind}.",
            advice="Give torch.tensor([...]) with the row numbers.",
        )


def checked_row_ids(label: str, row_ids: Tensor, shape: Sequence[int]) -> Tensor:
    """The unique row numbers of a request, ascending.

    :param label: what messages call the table.
    :param shape: of the table.
    :raises ArgumentTypeError: these are no integers.
    :raises ArgumentValueError: one is out of range.
    """
    require_row_ids(label, row_ids)
    if not len(shape):
        raise ArgumentValueError(f"{label} is a single number, and has no rows.", advice="Pull it whole.")
    rows = shape[0]
    unique = torch.unique(row_ids.detach().reshape(-1).to(torch.int64))
    if len(unique) and (int(unique[0]) < 0 or int(unique[-1]) >= rows):
        wrong = int(unique[0]) if int(unique[0]) < 0 else int(unique[-1])
        raise ArgumentValueError(
            f"Row {wrong} was asked for, and {label} has the rows 0 to {rows - 1}.",
            advice="Give row numbers of the table.",
            row=wrong,
        )
    return unique


class Table:
    """One table on the ranks. Where it is cut, every call is a collective.

    :param rows: this rank's word of what the table begins with; rank 0's counts.
    :param is_cut: whether every rank holds only a range of rows.
    :param updater: updates the rows, where the store does; updates it has put off are made before rows are read.
    :param label: what messages call it.
    """

    def __init__(
        self,
        key: Key,
        rows: RowSparse,
        collectives: Collectives,
        *,
        is_cut: bool,
        updater: Updater | None = None,
        label: str = "the table",
    ) -> None:
        self.key = key
        self._label = label
        self.shape = torch.Size(rows.shape)
        self._collectives = collectives
        self._updater = updater
        self.is_cut = is_cut and collectives.size > 1
        self.borders = row_borders(self.shape[0], collectives.size) if self.is_cut else [0, self.shape[0]]
        position = collectives.rank if self.is_cut else 0
        self.first_row, self.last_row = self.borders[position], self.borders[position + 1]
        self.stored = rows.values.new_zeros((self.last_row - self.first_row, *self.shape[1:]))
        self._receive(rows)

    def _receive(self, rows: RowSparse) -> None:
        if self.is_cut:
            # Rank 0's rows go to their owners, nobody else has any.
            mine = rows if self._collectives.rank == 0 else _nothing_like(rows)
            owned = rows_to_owners(mine, self.borders, self._collectives)
            self.stored.index_copy_(0, owned.indices - self.first_row, owned.values)
            return
        self.stored.index_copy_(0, rows.indices, rows.values)
        self._collectives.broadcast(self.stored).wait()

    def sum(self, rows: RowSparse) -> RowSparse:
        """The sum over ranks of a gradient, its rows that are stored here, numbered as they are. A collective."""
        if not self.is_cut:
            return sum_of_rows(rows, self._collectives)
        owned = rows_to_owners(rows, self.borders, self._collectives)
        return RowSparse(owned.indices - self.first_row, owned.values, tuple(self.stored.shape))

    def pull(self, row_ids: Tensor) -> RowSparse:
        """Some rows; see :meth:`Store.row_sparse_pull`."""
        rows = checked_row_ids(self._label, row_ids, self.shape)
        there = rows.to(self.stored.device)
        if self.is_cut:
            values = rows_from_owners(there, self._read, self.borders, self._collectives)
        else:
            values = self._read(there)
        return RowSparse(rows, values.to(row_ids.device), tuple(self.shape))

    def whole(self) -> Tensor:
        """The whole table, a copy on every rank."""
        self._read(None)
        return self.gathered(self.stored)

    def _read(self, rows: Tensor | None) -> Tensor:
        """Rows by the numbers they are stored under; all of them for None. Up to date."""
        if self._updater is not None:
            self._updater.catch_up([self.key], [self.stored], None if rows is None else [rows])
        return self.stored if rows is None else self.stored.index_select(0, rows)

    def gathered(self, own: Tensor) -> Tensor:
        """Put together what every rank has for its rows: (rows here, \\*shape)."""
        if not self.is_cut:
            return own.detach().clone()
        longest = max(after - before for before, after in zip(self.borders[:-1], self.borders[1:], strict=True))
        padded = own.new_zeros((longest, *own.shape[1:]))
        padded[: len(own)] = own
        whole = own.new_empty((longest * self._collectives.size, *own.shape[1:]))
        self._collectives.all_gather(whole, padded).wait()
        parts = whole.split(longest)
        return torch.cat([p[: self.borders[k + 1] - self.borders[k]] for k, p in enumerate(parts)])

    def replace(self, whole: Tensor) -> None:
        """Replace all rows by rank 0's."""
        self._read(None)  # what was put off belongs to the old rows
        rows = torch.arange(self.shape[0], device=self.stored.device)
        self._receive(RowSparse(rows, whole.detach().to(self.stored), tuple(self.shape)))

    # --- saving -----------------------------------------------------------------------------------------------

    def rows_in_parts(self) -> Tensor | RowCut:
        """The rows that are stored here, to be saved as this rank's part; the whole table where it is not cut.

        As they stand: updates that were put off are part of the state.
        """
        return self._part(self.stored, ROWS_FILE) if self.is_cut else self.stored

    def load_rows(self, saved: Leaf) -> None:
        """Take the own rows of a saved table. No collective."""
        self.stored.copy_(row_range(saved, self.shape, self.first_row, self.last_row))

    def whole_state(self, state: Any) -> Any:
        """Put the ranks' states of this table together. A collective where it is cut."""
        if not self.is_cut:
            return state
        return changed(state, lambda leaf: self.gathered(leaf) if self._is_own(leaf) else leaf)

    def state_in_parts(self, state: Any) -> Any:
        """The state of the rows that are stored here, to be saved as this rank's part. No collective."""
        if not self.is_cut:
            return state
        return changed(state, lambda leaf: self._part(leaf, STATES_FILE) if self._is_own(leaf) else leaf)

    def own_state(self, state: Any) -> Any:
        """Cut a saved state, a whole one or that of any number of ranks, to the rows that are stored here."""

        def own(leaf: Leaf) -> Tensor:
            if len(leaf.shape) > 0 and (leaf.shape[0] == self.shape[0] or is_flat(leaf, self.shape)):
                return row_range(leaf, self.shape, self.first_row, self.last_row)
            return read_whole(leaf)

        return changed(state, own)

    def _part(self, own: Tensor, file: str) -> RowCut:
        return RowCut(own, self.first_row, self.shape[0], file=file)

    def _is_own(self, leaf: Tensor) -> bool:
        return leaf.ndim > 0 and len(leaf) == len(self.stored)


def _nothing_like(rows: RowSparse) -> RowSparse:
    return RowSparse.empty(rows.shape, dtype=rows.dtype, device=rows.device)
