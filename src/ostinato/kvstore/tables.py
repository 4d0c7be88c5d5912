"""Parameters that live on the store, of which a process holds the rows that a batch needs.

The loop for such a table: pull the rows of the batch, run the model on them, back-propagate, step. The step pushes the
gradients of the pulled rows; the store updates them.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.kvstore.parameters import ParameterHandle
from ostinato.kvstore.replicas import checked_device
from ostinato.kvstore.row_sparse_tables import require_row_ids
from ostinato.optim.row_sparse_gradient import RowSparse


@dataclass(frozen=True)
class PulledRows:
    """Rows of a table, here for one batch.

    :param indices: (n,) int64, ascending, without repeats: the rows that are here.
    :param values: (n, \\*row shape), a leaf that collects the gradient of these rows.
    """

    indices: Tensor
    values: Parameter

    def lookup(self, row_ids: Tensor) -> Tensor:
        """Give the rows of these numbers, as ``torch.nn.functional.embedding`` would from the whole table.

        :param row_ids: integers of any shape, all of them among the pulled ones.
        :returns: (\\*row_ids.shape, \\*row shape), connected to ``values``.
        :raises ArgumentTypeError: ``row_ids`` is no tensor of integers.
        :raises ArgumentValueError: a row was not pulled.
        """
        if not isinstance(row_ids, Tensor) or row_ids.is_floating_point() or row_ids.dtype == torch.bool:
            kind = row_ids.dtype if isinstance(row_ids, Tensor) else type(row_ids).__name__
            raise ArgumentTypeError(f"Row numbers are a tensor of integers, not {kind}.", advice="Use torch.tensor().")
        asked = row_ids.to(self.indices.dtype)
        missing = ~torch.isin(asked, self.indices)
        if bool(missing.any()):
            row = int(asked[missing][0])
            raise ArgumentValueError(
                f"Row {row} was not pulled.", advice="Pull the rows of the whole batch: row_sparse_data(ids).", row=row
            )
        return self.values[torch.searchsorted(self.indices, asked)]


class TableParameter(ParameterHandle):
    """A table on the store: a parameter whose weight is row-sparse.

    :param name: unique within a trainer.
    :param initial: the whole table, or the rows of it that are not zero; worker 0's counts. It is let go of when the
        store has taken it.
    :param devices: one for each replica.
    """

    stype = "row_sparse"

    def __init__(
        self, name: str, initial: Tensor | RowSparse, devices: Sequence[torch.device | str] = ("cpu",)
    ) -> None:
        if not isinstance(initial, (Tensor, RowSparse)):
            raise ArgumentTypeError(
                f"The table {name!r} begins with a tensor or with rows of it, not {type(initial).__name__}.",
                advice="Use torch.as_tensor(), or RowSparse for the rows that are not zero.",
            )
        if not initial.dtype.is_floating_point or not len(initial.shape):
            raise ArgumentTypeError(
                f"The table {name!r} begins with {str(initial.dtype).removeprefix('torch.')} numbers of shape "
                f"{tuple(initial.shape)}, and rows of floating point are trained.",
                advice="Convert it with .float(), and give it a dimension for its rows.",
            )
        if isinstance(devices, (str, torch.device)) or not isinstance(devices, Sequence) or not devices:
            raise ArgumentTypeError(
                f"devices is {devices!r}, and a list of devices is needed.", advice="Write ['cpu'], say."
            )
        self._initial: Tensor | RowSparse | None = initial
        self._shape = torch.Size(initial.shape)
        self._dtype = initial.dtype
        # Stand-ins without rows: they carry the multipliers and say on which devices the replicas are.
        super().__init__(
            name,
            [
                Parameter(torch.empty((0, *self._shape[1:]), dtype=self._dtype, device=checked_device(d)))
                for d in devices
            ],
        )
        self._pulled: list[list[PulledRows]] = [[] for _ in self.replicas]
        self._trainer: weakref.ref[Any] | None = None

    # --- binding ------------------------------------------------------------------------------------------------

    def bind(self, trainer: Any) -> None:
        """Belong to a trainer, for good.

        :raises StateError: it belongs to another one that still exists.
        """
        owner = None if self._trainer is None else self._trainer()
        if owner is not None and owner is not trainer:
            raise StateError(
                f"The table {self.name!r} belongs to another trainer, whose store holds its rows.",
                advice="Make one trainer for each table, or make a new TableParameter.",
            )
        self._trainer = weakref.ref(trainer)

    def initial_rows(self) -> RowSparse:
        """What the store begins with; rows that are not listed are zero."""
        initial = self._initial
        if initial is None:
            raise StateError(f"The table {self.name!r} was handed to a store before.", advice="Make a new one.")
        if isinstance(initial, RowSparse):
            return initial
        rows = torch.arange(len(initial), device=initial.device)
        return RowSparse(rows, initial.detach(), tuple(initial.shape))

    @property
    def is_handed_over(self) -> bool:
        """Whether a store has the rows."""
        return self._initial is None

    def handed_over(self) -> None:
        """The store has the rows; they are not kept twice."""
        self._initial = None

    # --- shape and place ----------------------------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        """The shape of the whole table."""
        return self._shape

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the rows."""
        return self._dtype

    def numel(self) -> int:
        """Elements of the whole table."""
        return self._shape.numel()

    @property
    def grad_stype(self) -> str:
        """Always ``"row_sparse"``."""
        return "row_sparse"

    def weights(self) -> list[Tensor]:
        """None: nothing of a table is pulled unless it is asked for."""
        return []

    def data(self) -> Tensor:
        """Refused: the rows are on the store.

        :raises StateError: always.
        """
        raise StateError(
            f"{self.name!r} is a row-sparse parameter; its rows are on the store.",
            advice="Pull the rows you need with row_sparse_data(row_ids), or all of them with all_rows().",
        )

    def set_data(self, value: Tensor) -> None:
        """Replace all rows on the store; their optimizer state stays. All ranks call it.

        :raises ArgumentValueError: the shape is another one.
        :raises StateError: the table belongs to no trainer.
        """
        self._check_shape(value)
        self._owner().replace_table(self, value)

    # --- rows ---------------------------------------------------------------------------------------------------

    def row_sparse_data(self, row_ids: Tensor) -> PulledRows:
        """Pull rows for the first replica on the device of ``row_ids``. Under ``torch.no_grad()`` they learn nothing.

        :param row_ids: integers of any shape, repeats and any order allowed.
        :raises StateError: the table belongs to no trainer.
        :raises ArgumentTypeError: these are no row numbers.
        :raises ArgumentValueError: a row number is out of range.
        """
        require_row_ids(repr(self.name), row_ids)
        devices = self.devices
        replica = devices.index(row_ids.device) if row_ids.device in devices else 0
        return self._rows_for([replica], [row_ids])[0]

    def list_row_sparse_data(self, row_ids: Tensor) -> list[PulledRows]:
        """Pull the same rows for every replica; see :meth:`row_sparse_data`."""
        require_row_ids(repr(self.name), row_ids)
        return self._rows_for(list(range(len(self.replicas))), [row_ids.to(device) for device in self.devices])

    def all_rows(self) -> Tensor:
        """Pull the whole table, for saving. A collective where the store is distributed."""
        trainer = self._owner()
        return trainer.pull_table(self)

    def _rows_for(self, replicas: Sequence[int], row_ids: list[Tensor]) -> list[PulledRows]:
        found = self._owner().pull_rows(self, row_ids)
        learns = self.is_trained and torch.is_grad_enabled()
        pulled = []
        for replica, rows in zip(replicas, found, strict=True):
            device = self.devices[replica]
            pulled.append(PulledRows(rows.indices.to(device), Parameter(rows.values.to(device), learns)))
            if learns:
                self._pulled[replica].append(pulled[-1])
        return pulled

    def _owner(self) -> Any:
        trainer = None if self._trainer is None else self._trainer()
        if trainer is None:
            raise StateError(
                f"The table {self.name!r} belongs to no trainer, and the trainer's store has the rows.",
                advice="Give it to a ParameterTrainer first, and keep the trainer.",
            )
        return trainer

    # --- gradients ----------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Nothing to hook: a pulled row has a gradient or has none."""

    def mark_fresh(self) -> None:
        """Nothing to mark: see :meth:`watch`."""

    @property
    def is_fresh(self) -> bool:
        """True when some pulled row has a gradient."""
        return any(rows.values.grad is not None for pulled in self._pulled for rows in pulled)

    def clear_fresh(self) -> None:
        """An update has used the gradients; the rows that were pulled for it are let go of."""
        self._pulled = [[] for _ in self.replicas]

    def scale_gradients(self, factor: float) -> None:
        """Multiply the gradients of all pulled rows."""
        with torch.no_grad():
            for pulled in self._pulled:
                for rows in pulled:
                    if rows.values.grad is not None:
                        rows.values.grad.mul_(factor)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Let go of the gradients of the rows that were pulled so far, and of these rows.

        Rows without a gradient stay: they were pulled for a backward pass that is still to come.
        """
        self._pulled = [[rows for rows in pulled if rows.values.grad is None] for pulled in self._pulled]

    def gradients(self, *, fill: bool) -> list[Tensor | RowSparse]:
        """The rows that were pulled and have a gradient, for each replica."""
        shape = tuple(self._shape)
        given: list[Tensor | RowSparse] = []
        for pulled, device in zip(self._pulled, self.devices, strict=True):
            used = [(rows.indices, rows.values.grad) for rows in pulled if rows.values.grad is not None]
            if not used:
                given.append(RowSparse.empty(shape, dtype=self._dtype, device=device))
                continue
            indices = torch.cat([index for index, _ in used])
            given.append(RowSparse.from_rows(indices, torch.cat([grad for _, grad in used]), shape))
        return given
