"""What the stores of this package have in common: the calls, their keys, and checks of what they are given."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore.compression import CompressionScheme, is_finite
from ostinato.kvstore.keys import KeyKind, arranged, key_list, single_key
from ostinato.kvstore.store import Capability, Key, Outputs, Store, Value, Values
from ostinato.kvstore.store_arguments import check_residuals, no_compression, refuse_compression
from ostinato.kvstore.summing import as_value, write_value
from ostinato.optim.argument_checks import require_mapping
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.runs.row_cut import RowCut, RowCutTable

_log = logging.getLogger(__name__)


class BuiltInStore(Store):
    """A store whose keys have a shape, and values of other shapes are refused.

    It arranges what a call is given by key, checks it, and hands it to the members at the end of this class, in which
    the stores differ.

    :param type: the name it was created by.
    """

    built_in = True

    def __init__(self, type: str) -> None:
        if not isinstance(type, str):
            raise ArgumentTypeError(f"The type of a store is its name, not {type!r}.", advice="Write 'dist_sync', say.")
        self._type = type
        self._kind = KeyKind()
        self._labels: dict[Key, str] = {}
        self._scheme: CompressionScheme | None = None
        """How gradients are compressed; None: they are not."""
        self._passed_over: set[Key] = set()

    @property
    def type(self) -> str:
        """See :attr:`Store.type`."""
        return self._type

    @property
    def rank(self) -> int:
        """See :attr:`Store.rank`."""
        return self._seat()[0]

    @property
    def num_workers(self) -> int:
        """See :attr:`Store.num_workers`."""
        return self._seat()[1]

    def _seat(self) -> tuple[int, int]:
        """Rank and number of workers."""
        return 0, 1

    def is_capable(self, capability: Capability) -> bool:
        """Everything.

        :raises ArgumentValueError: there is no such capability.
        """
        if capability not in get_args(Capability):
            raise ArgumentValueError(
                f"There is no capability {capability!r}.",
                advice="Ask for optimizer, row_sparse, compression or live_optimizer.",
            )
        return True

    def name_keys(self, names: Mapping[Key, str]) -> None:
        """See :meth:`Store.name_keys`."""
        self._labels.update(require_mapping("The names of keys", names, "Write {0: 'weight'}."))

    def agree(self, flags: Sequence[bool]) -> list[bool]:
        """See :meth:`Store.agree`."""
        if not isinstance(flags, (list, tuple)) or not all(isinstance(flag, bool) for flag in flags):
            raise ArgumentTypeError(f"Flags are a list of True and False, not {flags!r}.", advice="Write [True].")
        return self._any(flags)

    def _any(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether any worker has set it."""
        return list(flags)

    # --- keys and values ------------------------------------------------------------------------------------------

    def broadcast(
        self, key: Key | Sequence[Key], value: Values, out: Outputs, priority: int | Sequence[int] = 0
    ) -> None:
        """See :meth:`Store.broadcast`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def push(self, key: Key | Sequence[Key], value: Values, priority: int | Sequence[int] = 0) -> None:
        """See :meth:`Store.push`. Returns when the values are applied: a collective where workers train in step."""
        self._exchange(self._known(key, value), {}, only_if_finite=False, in_place=False)

    def pull(
        self, key: Key | Sequence[Key], out: Outputs, priority: int | Sequence[int] = 0, ignore_sparse: bool = True
    ) -> None:
        """See :meth:`Store.pull`. A collective only for whole tables that are cut over the ranks."""
        wanted = self._known(key, out)
        for one in [one for one in wanted if ignore_sparse and self._is_table(one)]:
            del wanted[one]
            if one not in self._passed_over:
                self._passed_over.add(one)
                _log.info("pull passes over the table %r, whose rows are pulled one by one", one)
        self._read(wanted)

    def pushpull(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Outputs | None = None,
        priority: int | Sequence[int] = 0,
        *,
        only_if_finite: bool = False,
    ) -> bool:
        """See :meth:`Store.pushpull`. A collective where workers train in step; a worker of several that has nothing
        to push for a key may give an empty list."""
        values = self._known(key, value)
        outputs = values if out is None else self._known(key, out)
        return self._exchange(values, outputs, only_if_finite=only_if_finite, in_place=out is None)

    def row_sparse_pull(
        self, key: Key | Sequence[Key], row_ids: Tensor | Sequence[Tensor], priority: int | Sequence[int] = 0
    ) -> RowSparse | list[RowSparse]:
        """See :meth:`Store.row_sparse_pull`. A collective for tables that are cut over the ranks: every worker asks
        equally often, perhaps for no rows."""
        if isinstance(key, (list, tuple)):
            asked = self._known(key, row_ids)
            return [self._rows(one, ids) for one, many in asked.items() for ids in many]
        self._known(key, [])
        if isinstance(row_ids, Tensor):
            return self._rows(key, row_ids)  # pyrefly: ignore
        if not isinstance(row_ids, (list, tuple)):
            raise ArgumentTypeError(
                f"Row numbers are a tensor of integers, or a list of such, not {type(row_ids).__name__}.",
                advice="Use torch.as_tensor().",
            )
        return [self._rows(key, ids) for ids in row_ids]  # pyrefly: ignore

    def set_value(self, key: Key, value: Tensor) -> None:
        """See :meth:`Store.set_value`. All workers wait for one another."""
        self._known(single_key(key), [])
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(
                f"The new value of {self._label(key)} is a tensor, not {type(value).__name__}.",
                advice="Use torch.as_tensor().",
            )
        self._check_shape(key, value)
        with torch.no_grad():
            self._replace(key, value.detach())

    def rows_in_parts(self, key: Key) -> Tensor | RowCut:
        """See :meth:`Store.rows_in_parts`."""
        self._known(single_key(key), [])
        return self._own_rows(key)

    def load_rows(self, key: Key, rows: Tensor | RowCutTable) -> None:
        """See :meth:`Store.load_rows`."""
        self._known(single_key(key), [])
        if not isinstance(rows, (Tensor, RowCutTable)):
            raise ArgumentTypeError(
                f"Rows of {self._label(key)} are loaded from a tensor or a saved table, not {type(rows).__name__}.",
                advice="Give what was loaded in the place of rows_in_parts().",
            )
        if tuple(rows.shape) != tuple(self._shape(key)):
            raise ArgumentValueError(
                f"{_sentence(self._label(key))} holds {tuple(self._shape(key))}, and a table of shape "
                f"{tuple(rows.shape)} was to be loaded.",
                advice="Load the table that was saved for it.",
            )
        self._take_rows(key, rows)

    def load_residuals(self, residuals: Sequence[Mapping[str, Any]]) -> None:
        """See :meth:`Store.load_residuals`."""
        if not check_residuals(residuals):
            return
        if self._scheme is None:
            raise no_compression()
        self._owe(residuals)

    # --- what the stores give -------------------------------------------------------------------------------------

    @abstractmethod
    def _has(self, key: Key) -> bool:
        """Whether the key was initialised."""

    @abstractmethod
    def _is_table(self, key: Key) -> bool:
        """Whether rows of the key are pulled one by one."""

    @abstractmethod
    def _shape(self, key: Key) -> torch.Size:
        """The shape of what a key holds."""

    @abstractmethod
    def _exchange(
        self,
        values: Mapping[Key, Sequence[Value]],
        outputs: Mapping[Key, Sequence[Tensor]],
        *,
        only_if_finite: bool,
        in_place: bool,
    ) -> bool:
        """Push, and pull to the outputs; see :meth:`pushpull`.

        :param in_place: the outputs are the values themselves: replicas receive the sum of their gradients.
        """

    @abstractmethod
    def _read(self, outputs: Mapping[Key, Sequence[Tensor]]) -> None:
        """Copy what is stored to the outputs."""

    @abstractmethod
    def _rows(self, key: Key, row_ids: Tensor) -> RowSparse:
        """See :meth:`row_sparse_pull`."""

    @abstractmethod
    def _replace(self, key: Key, value: Tensor) -> None:
        """See :meth:`set_value`. The value may be the caller's own tensor; gradients are not recorded."""

    @abstractmethod
    def _own_rows(self, key: Key) -> Tensor | RowCut:
        """See :meth:`rows_in_parts`."""

    @abstractmethod
    def _take_rows(self, key: Key, rows: Tensor | RowCutTable) -> None:
        """See :meth:`load_rows`; they have the table's shape."""

    @abstractmethod
    def _owe(self, residuals: Sequence[Mapping[str, Any]]) -> None:
        """See :meth:`load_residuals`; there are some, and the store compresses."""

    # --- for the stores -------------------------------------------------------------------------------------------

    def _label(self, key: Key) -> str:
        """How a message calls a key: by the name of its parameter, where that is known."""
        return repr(self._labels[key]) if key in self._labels else f"the key {key!r}"

    def _known(self, key: Key | Sequence[Key], values: Any) -> dict[Key, list[Any]]:
        """Values by key, for keys that were initialised."""
        keys = key_list(key)
        self._kind.check(keys)
        for one in keys:
            if not self._has(one):
                raise ArgumentValueError(
                    f"The key {one!r} was never initialised.", advice="Call init() first, on all workers.", key=one
                )
        return arranged(key, values)

    def _firsts(self, key: Key | Sequence[Key], value: Values) -> dict[Key, Value]:
        """The values that new keys begin with."""
        values = arranged(key, value)
        self._kind.check(list(values))
        for one, given in values.items():
            if self._has(one):
                raise ArgumentValueError(f"The key {one!r} was initialised before.", advice="Use set_value().", key=one)
            if len(given) != 1:
                raise ArgumentValueError(
                    f"The key {one!r} is initialised with {len(given)} values instead of one.",
                    advice="Give one value for each key.",
                )
        firsts = {one: as_value(given[0]) for one, given in values.items()}
        return {one: first.checked() if isinstance(first, RowSparse) else first for one, first in firsts.items()}

    def _checked(self, key: Key, pushed: Sequence[Value]) -> list[Value]:
        """Values that may be added up for a key; those of sparse tensors as rows."""
        checked = []
        for value in pushed:
            self._check_shape(key, value)
            if self._scheme is not None:
                refuse_compression(self._label(key), value)
            plain = as_value(value)
            checked.append(plain.checked() if isinstance(plain, RowSparse) else plain)
        return checked

    def _check_shape(self, key: Key, value: Value) -> None:
        expected = self._shape(key)
        if tuple(value.shape) != tuple(expected):
            raise ArgumentValueError(
                f"{_sentence(self._label(key))} holds {tuple(expected)}, and a value of shape {tuple(value.shape)} "
                "was given.",
                advice="The shape of a key cannot change.",
                key=key,
            )

    def _write(self, key: Key, value: Value, outputs: Sequence[Tensor]) -> None:
        """Copy a value to outputs of its shape."""
        for output in outputs:
            if not isinstance(output, Tensor):
                raise ArgumentTypeError(
                    f"An output for {self._label(key)} is {type(output).__name__}, and tensors are written to.",
                    advice="Give torch.empty(...) of the key's shape.",
                )
            if tuple(output.shape) != tuple(value.shape):
                raise ArgumentValueError(
                    f"{_sentence(self._label(key))} holds {tuple(value.shape)}, and an output has the shape "
                    f"{tuple(output.shape)}.",
                    advice="Give an output of the key's shape.",
                    key=key,
                )
        with torch.no_grad():
            write_value(value, outputs)


def are_finite(given: Mapping[Key, Sequence[Value]]) -> bool:
    """Whether all values that were given by key are finite."""
    flat = (one.values if isinstance(one, RowSparse) else one for many in given.values() for one in many)
    return all(bool(is_finite(one)) for one in flat)


def _sentence(label: str) -> str:
    return label[0].upper() + label[1:]
