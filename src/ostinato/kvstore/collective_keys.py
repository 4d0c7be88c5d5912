"""What a worker of a synchronous store holds under its keys: dense values, tables, and whatever updates them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ostinato.errors import StateError
from ostinato.kvstore.buckets_exchange import BucketExchange
from ostinato.kvstore.row_sparse_tables import Table
from ostinato.kvstore.sharded import ShardedUpdate
from ostinato.kvstore.store import Key
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Updater


class CollectiveKeys:
    """Shapes and values by key. A key is either dense or a table; a dense one may come to be exchanged as rows."""

    def __init__(self) -> None:
        self.shapes: dict[Key, tuple[torch.Size, torch.dtype, torch.device]] = {}
        """Of dense keys."""
        self.stored: dict[Key, Tensor] = {}
        """Of dense keys, but for those whose sums are in the gradients of their parameters."""
        self.tables: dict[Key, Table] = {}
        self.row_keys: set[Key] = set()
        """Dense weights whose gradients come as rows."""
        self.updater: Updater | None = None
        self.sharded: ShardedUpdate | None = None
        """The update of what lies in buckets, from the first bucket on."""
        self.buckets: BucketExchange | None = None
        """From the store's opening on."""

    def __contains__(self, key: Key) -> bool:
        return key in self.shapes or key in self.tables

    def __len__(self) -> int:
        return len(self.shapes) + len(self.tables)

    def home(self, key: Key) -> tuple[torch.Size, torch.dtype, torch.device]:
        """Shape, dtype and device of a key."""
        if key in self.tables:
            table = self.tables[key]
            return table.shape, table.stored.dtype, table.stored.device
        return self.shapes[key]

    def value(self, key: Key, rows: Tensor | None = None) -> Tensor:
        """What is stored for a dense key, up to date.

        :param rows: the rows that will be read; None for all.
        """
        if key not in self.stored:
            raise StateError(
                f"The key {key!r} belongs to a parameter whose gradient this store adds up; it keeps no copy of it.",
                advice="Read the parameter, or its gradient.",
                key=key,
            )
        stored = self.stored[key]
        if self.updater is not None and key in self.row_keys:
            # Rows that had no gradient may have been spared updates (SGD's update="dense_lazy").
            self.updater.catch_up([key], [stored], None if rows is None else [rows.to(stored.device)])
        return stored

    def updated_part(self, key: Key) -> Tensor:
        """The part of a dense weight that this worker updates, a view."""
        place = None if self.buckets is None else self.buckets.place_of(key)
        return self.stored[key] if place is None or self.sharded is None else self.sharded.own_part(*place)

    def with_rows(self, key: Key) -> Tensor:
        """What is stored for a key whose gradient comes as rows, numbered as it is stored."""
        return self.tables[key].stored if key in self.tables else self.stored[key]

    def replace(self, sums: Mapping[Key, Tensor], rows: Mapping[Key, RowSparse]) -> None:
        """Store sums in the place of what there was; of rows, the listed ones."""
        for key, total in sums.items():
            if key in self.stored:
                self.stored[key].copy_(total)
        for key, one in rows.items():
            if key in self.tables or key in self.stored:
                stored = self.with_rows(key)
                stored.index_copy_(0, one.indices, one.values.to(stored.dtype))

    def is_placed(self, key: Key) -> bool:
        """Whether it is known which part of the key this worker updates."""
        in_bucket = self.buckets is not None and key in self.buckets
        return in_bucket or key in self.tables or key in self.row_keys

    def clear(self) -> None:
        """Forget the values."""
        self.stored.clear()
        self.tables.clear()
        self.buckets = None
