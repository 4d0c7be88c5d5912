"""A gradient that names its rows: what an embedding gives, and what row-sparse updates and stores take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.optim.argument_checks import require_tensor


@dataclass(frozen=True)
class RowSparse:
    """Some rows of a table; every row that is not listed is zero.

    The rows are those of the first dimension. ``RowSparse(indices, values, shape)`` checks kinds and sizes, which costs
    nothing; order and range of the row numbers are the caller's promise, because looking at them would make the host
    wait for the device. :meth:`checked` looks, and :meth:`from_rows` puts any list of rows in order.

    :param indices: (n,) int64, strictly ascending, each in 0..shape[0]-1, on the device of ``values``.
    :param values: (n, \\*shape[1:]), one row each.
    :param shape: the shape of the whole table, at least one dimension.
    :raises ArgumentTypeError: the row numbers are not int64.
    :raises ArgumentValueError: the sizes do not fit together.
    """

    indices: Tensor
    values: Tensor
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.indices, Tensor) or not isinstance(self.values, Tensor):
            require_tensor("A list of row numbers", self.indices)
            require_tensor("A list of rows", self.values)
        object.__setattr__(self, "shape", _checked_shape(self.shape))
        if self.indices.dtype != torch.int64:
            raise ArgumentTypeError(
                f"Row numbers are int64, and these are {str(self.indices.dtype).removeprefix('torch.')}.",
                advice="Convert them with .long().",
            )
        if not self.shape or self.indices.ndim != 1 or self.values.shape != (len(self.indices), *self.shape[1:]):
            raise ArgumentValueError(
                f"Row numbers of shape {tuple(self.indices.shape)} and rows of shape {tuple(self.values.shape)} do not "
                f"make a table of shape {self.shape}.",
                advice="Give one number and one row of the table's width for each row.",
                indices=tuple(self.indices.shape),
                values=tuple(self.values.shape),
                shape=self.shape,
            )
        if self.indices.device != self.values.device:
            raise ArgumentValueError(
                f"The row numbers are on {self.indices.device} and the rows on {self.values.device}.",
                advice="Move both to the device of the table.",
            )

    @classmethod
    def from_rows(cls, indices: Tensor, values: Tensor, shape: tuple[int, ...]) -> RowSparse:
        """Put rows in order and add up those that are listed twice; row numbers are checked.

        :param indices: row numbers, integers in any order, repeats allowed; flattened.
        :param values: one row for each number: (\\*indices.shape, \\*shape[1:]).
        :param shape: the shape of the whole table.
        :raises ArgumentValueError: a row number is negative or too large for the table.
        """
        shape = _checked_shape(shape)
        flat = require_tensor("A list of row numbers", indices).reshape(-1).to(torch.int64)
        if require_tensor("A list of rows", values).numel() != len(flat) * math.prod(shape[1:]) or not shape:
            raise ArgumentValueError(
                f"{len(flat)} row numbers and rows of shape {tuple(values.shape)} make no table of shape {shape}.",
                advice="Give one row of the table's width for each number.",
            )
        rows = values.reshape(len(flat), *shape[1:])
        unique, place = torch.unique(flat, return_inverse=True)  # sorted
        if len(unique) == len(flat):
            order = torch.argsort(flat)
            return cls(flat[order], rows[order], shape)._in_range()
        summed = torch.zeros((len(unique), *shape[1:]), dtype=rows.dtype, device=rows.device)
        return cls(unique, summed.index_add_(0, place, rows), shape)._in_range()

    @classmethod
    def from_coo(cls, tensor: Tensor) -> RowSparse:
        """Take a ``torch.sparse_coo`` tensor whose first dimension is sparse, as ``Embedding(sparse=True)`` leaves it.

        :raises ArgumentTypeError: the tensor is not COO, or more than its first dimension is sparse.
        """
        require_tensor("A row-sparse gradient", tensor)
        if tensor.layout != torch.sparse_coo or tensor.sparse_dim() != 1:
            raise ArgumentTypeError(
                f"A row-sparse gradient comes from a COO tensor that is sparse in its first dimension only; this one "
                f"has layout {str(tensor.layout).removeprefix('torch.')}"
                + (f" and {tensor.sparse_dim()} sparse dimensions." if tensor.layout == torch.sparse_coo else "."),
                advice="Use torch.nn.Embedding(sparse=True), or hand over a dense gradient.",
            )
        tensor = tensor.detach().coalesce()
        return cls(tensor.indices()[0], tensor.values(), tuple(tensor.shape))

    @classmethod
    def empty(
        cls, shape: tuple[int, ...], *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> RowSparse:
        """Give a gradient without rows."""
        return cls(
            torch.empty(0, dtype=torch.int64, device=device),
            torch.empty((0, *shape[1:]), dtype=dtype, device=device),
            shape,
        )

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the rows."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """The device that holds row numbers and rows."""
        return self.values.device

    def checked(self) -> RowSparse:
        """Give this value back if its row numbers ascend strictly and fit the table. Makes the host wait.

        :raises ArgumentValueError: they do not.
        """
        self._in_range()
        if len(self.indices) > 1 and not bool((self.indices[1:] > self.indices[:-1]).all()):
            raise ArgumentValueError(
                "The row numbers of a row-sparse gradient do not ascend, or one is listed twice.",
                advice="Build it with RowSparse.from_rows, which sorts the rows and adds up repeats.",
            )
        return self

    def to_dense(self) -> Tensor:
        """Give the whole table, with zeros in the rows that are not listed."""
        dense = torch.zeros(self.shape, dtype=self.values.dtype, device=self.values.device)
        return dense.index_copy_(0, self.indices, self.values)

    def to_coo(self) -> Tensor:
        """Give the same rows as a coalesced ``torch.sparse_coo`` tensor that shares their memory."""
        return torch.sparse_coo_tensor(
            self.indices[None], self.values, self.shape, is_coalesced=True, check_invariants=False
        )

    def _in_range(self) -> RowSparse:
        if len(self.indices):
            lowest, highest = torch.aminmax(self.indices)
            if int(lowest) < 0 or int(highest) >= self.shape[0]:
                wrong = int(lowest) if int(lowest) < 0 else int(highest)
                raise ArgumentValueError(
                    f"Row {wrong} is outside a table of {self.shape[0]} rows.",
                    advice=f"Row numbers run from 0 to {self.shape[0] - 1}.",
                    row=wrong,
                    rows=self.shape[0],
                )
        return self


def _checked_shape(shape: Any) -> tuple[int, ...]:
    if type(shape) is torch.Size or (
        isinstance(shape, (list, tuple)) and all(type(size) is int and size >= 0 for size in shape)
    ):
        return tuple(shape)
    raise ArgumentTypeError(
        f"The shape of a table is a tuple of sizes, not {shape!r}.", advice="Write (rows, columns)."
    )
