"""The store of one process: it adds up what the replicas push."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore.built_in_store import BuiltInStore, are_finite
from ostinato.kvstore.compression import CompressionScheme, Compressor, add_decoded, residuals_for_rank
from ostinato.kvstore.loss_scaler import all_finite
from ostinato.kvstore.registry import register_built_in
from ostinato.kvstore.replica_updaters import refresh_master_copy
from ostinato.kvstore.row_sparse_tables import checked_row_ids
from ostinato.kvstore.saved_leaves import read_whole
from ostinato.kvstore.store import Capability, Key, Updater, Value, Values
from ostinato.kvstore.store_arguments import check_saved_states, checked_optimizer, no_optimizer
from ostinato.kvstore.summing import sum_values, write_value
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Optimizer
from ostinato.optim.rules import Updater as OptimizerUpdater
from ostinato.runs.row_cut import RowCutTable


class LocalStore(BuiltInStore):
    """Adds up over the replicas of this process: in host memory (``local``) or on their devices (``device``).

    :param type: ``"local"`` or ``"device"``.
    """

    def __init__(self, type: str = "local") -> None:
        super().__init__(type)
        self._stored: dict[Key, Tensor] = {}
        self._tables: set[Key] = set()
        self._updater: Updater | None = None
        self._optimizer: OptimizerUpdater | None = None
        self._compressors: list[Compressor] = []  # one for each replica

    def __repr__(self) -> str:
        return f"LocalStore({self._type!r}, {len(self._stored)} keys)"

    def is_capable(self, capability: Capability) -> bool:
        """Everything but compression on the host, where nothing travels.

        :raises ArgumentValueError: there is no such capability.
        """
        super().is_capable(capability)
        return capability != "compression" or self.type != "local"

    # --- keys and values ----------------------------------------------------------------------------------------

    def init(self, key: Key | Sequence[Key], value: Values) -> None:
        """See :meth:`Store.init`."""
        for one, first in self._firsts(key, value).items():
            if isinstance(first, RowSparse):
                self._tables.add(one)
                first = first.to_dense()
            self._stored[one] = first.detach().to(self._home(first), copy=True)

    def _exchange(
        self,
        values: Mapping[Key, Sequence[Value]],
        outputs: Mapping[Key, Sequence[Tensor]],
        *,
        only_if_finite: bool,
        in_place: bool,
    ) -> bool:
        given = {key: self._checked(key, pushed) for key, pushed in values.items()}
        if only_if_finite and self._scheme is not None:
            # What comes out of compression is always finite, so this has to be asked before.
            if not are_finite(given):
                return False
            only_if_finite = False
        sums = self._sums(given)
        if only_if_finite and not all_finite(sums.values()):
            return False
        self._take(sums)
        for key, targets in outputs.items():
            if not in_place:
                if targets:
                    self._write(key, self._caught_up(key), targets)
            elif isinstance(sums[key], RowSparse):
                rows = sums[key].indices
                write_value(RowSparse(rows, self._caught_up(key, rows)[rows], sums[key].shape), targets)
            else:
                write_value(self._caught_up(key), targets)
        return True

    def _checked(self, key: Key, pushed: Sequence[Value]) -> list[Value]:
        if not pushed:
            raise ArgumentValueError(
                f"Nothing is pushed for {self._label(key)}.", advice="Give one value for each replica."
            )
        return super()._checked(key, pushed)

    def _read(self, outputs: Mapping[Key, Sequence[Tensor]]) -> None:
        for key, targets in outputs.items():
            self._write(key, self._caught_up(key), targets)

    def _rows(self, key: Key, row_ids: Tensor) -> RowSparse:
        table = self._stored[key]
        rows = checked_row_ids(self._label(key), row_ids, table.shape)
        here = rows.to(table.device)
        values = self._caught_up(key, here)[here].to(row_ids.device)
        return RowSparse(rows, values, tuple(table.shape))

    def _replace(self, key: Key, value: Tensor) -> None:
        self._caught_up(key).copy_(value)
        if self._optimizer is not None:
            refresh_master_copy(self._optimizer, key, self._stored[key])

    def _own_rows(self, key: Key) -> Tensor:
        return self._stored[key]  # whole: no other process has a part of it

    def _take_rows(self, key: Key, rows: Tensor | RowCutTable) -> None:
        self._stored[key].copy_(read_whole(rows, self._stored[key].shape))

    # --- updating -----------------------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """See :meth:`Store.set_optimizer`."""
        self._optimizer = OptimizerUpdater(checked_optimizer(optimizer))
        self._updater = None

    def set_updater(self, updater: Updater) -> None:
        """See :meth:`Store.set_updater`."""
        if not callable(updater):
            raise ArgumentTypeError(
                f"An updater is called with (key, sum, stored); {updater!r} cannot be called.",
                advice="Give a function, or use set_optimizer().",
            )
        self._updater = updater
        self._optimizer = None

    def save_optimizer_states(self) -> dict[str, Any]:
        """See :meth:`Store.save_optimizer_states`."""
        return self._updating().state_dict()

    def load_optimizer_states(self, states: Mapping[str, Any]) -> None:
        """See :meth:`Store.load_optimizer_states`."""
        self._updating().load_state_dict(check_saved_states(states))

    # --- compression --------------------------------------------------------------------------------------------

    def set_gradient_compression(self, parameters: Mapping[str, Any]) -> None:
        """See :meth:`Store.set_gradient_compression`."""
        if not self.is_capable("compression"):
            raise ArgumentValueError(
                "The store 'local' compresses nothing: replicas share the host's memory.",
                advice="Use the store 'device', or one of the distributed ones.",
            )
        self._scheme = CompressionScheme.from_params(parameters)

    def residuals(self) -> list[dict[str, Any]]:
        """One state for each replica, in the order of the replicas."""
        return [one.state_dict() for one in self._compressors]

    def _owe(self, residuals: Sequence[Mapping[str, Any]]) -> None:
        assert self._scheme is not None
        loaded = [Compressor(self._scheme) for _ in residuals]
        for compressor, state in zip(loaded, residuals, strict=True):
            compressor.load_state_dict(state)
        self._compressors = loaded

    def close(self) -> None:
        """Forget everything."""
        self._stored.clear()
        self._compressors.clear()
        self._optimizer = None

    # --- inside -------------------------------------------------------------------------------------------------

    def _home(self, value: Value) -> torch.device:
        return torch.device("cpu") if self.type == "local" else value.device

    def _updating(self) -> OptimizerUpdater:
        if self._optimizer is None:
            raise no_optimizer()
        return self._optimizer

    def _has(self, key: Key) -> bool:
        return key in self._stored

    def _is_table(self, key: Key) -> bool:
        return key in self._tables

    def _shape(self, key: Key) -> torch.Size:
        return self._stored[key].shape

    def _sums(self, values: Mapping[Key, Sequence[Value]]) -> dict[Key, Any]:
        if self._scheme is None:
            return {
                key: sum_values(pushed, self._stored[key].device, in_fours=self.type == "local")
                for key, pushed in values.items()
            }
        return {key: self._compressed_sum(key, pushed) for key, pushed in values.items()}

    def _compressed_sum(self, key: Key, values: Sequence[Value]) -> Tensor:
        assert self._scheme is not None
        stored = self._stored[key]
        total = torch.zeros(stored.numel(), dtype=torch.float32, device=stored.device)
        for compressor, value in zip(self._compressors_for(len(values)), values, strict=True):
            assert isinstance(value, Tensor)
            packed = compressor.compress(key, value.detach().contiguous())
            add_decoded(self._scheme, packed.to(stored.device), total)
        return total.view(stored.shape)

    def _compressors_for(self, replicas: int) -> list[Compressor]:
        """One for each replica. Residuals of replicas that are gone are added to those of the ones that are left."""
        assert self._scheme is not None
        if len(self._compressors) > replicas:
            states = self.residuals()
            self._compressors = [Compressor(self._scheme) for _ in range(replicas)]
            for number, compressor in enumerate(self._compressors):
                compressor.load_sum_of(residuals_for_rank(states, number, replicas))
        while len(self._compressors) < replicas:
            self._compressors.append(Compressor(self._scheme))
        return self._compressors

    def _caught_up(self, key: Key, rows: Tensor | None = None) -> Tensor:
        """What is stored, with the updates that rows were spared so far."""
        stored = self._stored[key]
        if self._optimizer is not None:
            self._optimizer.catch_up([key], [stored], None if rows is None else [rows])
        return stored

    def _take(self, sums: Mapping[Key, Any]) -> None:
        with torch.no_grad():
            if self._optimizer is not None:
                self._optimizer(list(sums), list(sums.values()), [self._stored[key] for key in sums])
                return
            for key, total in sums.items():
                if self._updater is not None:
                    self._updater(key, total, self._stored[key])
                elif isinstance(total, RowSparse):
                    self._stored[key].index_copy_(0, total.indices, total.values.to(self._stored[key].dtype))
                else:
                    self._stored[key] = total


for _name in ("local", "device"):
    register_built_in(_name, lambda name, _group: LocalStore(name))
