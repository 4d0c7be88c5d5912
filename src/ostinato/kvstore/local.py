"""The store of one process: it adds up what the replicas push."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.kvstore.compression import CompressionScheme, Compressor, add_decoded, is_finite, residuals_for_rank
from ostinato.kvstore.keys import KeyKind, arranged, key_list
from ostinato.kvstore.loss_scaler import all_finite
from ostinato.kvstore.registry import register_built_in
from ostinato.kvstore.replica_updaters import refresh_master_copy
from ostinato.kvstore.store import Capability, Key, Outputs, Store, Updater, Value, Values
from ostinato.kvstore.summing import as_value, sum_values, write_value
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Optimizer
from ostinato.optim.rules import Updater as OptimizerUpdater

_log = logging.getLogger(__name__)


class LocalStore(Store):
    """Adds up over the replicas of this process: in host memory (``local``) or on their devices (``device``).

    :param type: ``"local"`` or ``"device"``.
    """

    built_in = True

    def __init__(self, type: str = "local") -> None:
        self._type = type
        self._kind = KeyKind()
        self._stored: dict[Key, Tensor] = {}
        self._tables: set[Key] = set()
        self._updater: Updater | None = None
        self._optimizer: OptimizerUpdater | None = None
        self._scheme: CompressionScheme | None = None
        self._compressors: list[Compressor] = []  # one for each replica
        self._passed_over: set[Key] = set()

    def __repr__(self) -> str:
        return f"LocalStore({self._type!r}, {len(self._stored)} keys)"

    @property
    def type(self) -> str:
        """``"local"`` or ``"device"``."""
        return self._type

    def is_capable(self, capability: Capability) -> bool:
        """Everything but compression on the host, where nothing travels.

        :raises ArgumentValueError: there is no such capability.
        """
        if capability not in ("optimizer", "row_sparse", "compression", "live_optimizer"):
            raise ArgumentValueError(
                f"There is no capability {capability!r}.", advice="Ask for optimizer, row_sparse or compression."
            )
        return capability != "compression" or self._type != "local"

    # --- keys and values ----------------------------------------------------------------------------------------

    def init(self, key: Key | Sequence[Key], value: Values) -> None:
        """See :meth:`Store.init`."""
        values = arranged(key, value)
        self._kind.check(list(values))
        for one, given in values.items():
            if one in self._stored:
                raise ArgumentValueError(f"The key {one!r} was initialised before.", advice="Use set_value().", key=one)
            if len(given) != 1:
                raise ArgumentValueError(f"The key {one!r} is initialised with {len(given)} values instead of one.")
        for one, given in values.items():
            first = as_value(given[0])
            if isinstance(first, RowSparse):
                self._tables.add(one)
                first = first.checked().to_dense()
            self._stored[one] = first.detach().to(self._home(first), copy=True)

    def broadcast(
        self, key: Key | Sequence[Key], value: Values, out: Outputs, priority: int | Sequence[int] = 0
    ) -> None:
        """See :meth:`Store.broadcast`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def push(self, key: Key | Sequence[Key], value: Values, priority: int | Sequence[int] = 0) -> None:
        """See :meth:`Store.push`."""
        values = self._known(key, value)
        self._check(values)
        self._take(self._sums(values))

    def pull(
        self, key: Key | Sequence[Key], out: Outputs, priority: int | Sequence[int] = 0, ignore_sparse: bool = True
    ) -> None:
        """See :meth:`Store.pull`."""
        for one, outputs in self._known(key, out).items():
            if one in self._tables and ignore_sparse:
                if one not in self._passed_over:
                    self._passed_over.add(one)
                    _log.info("pull passes over the table %r, whose rows are pulled one by one", one)
                continue
            self._check_shapes(one, outputs)
            write_value(self._caught_up(one), outputs)

    def pushpull(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Outputs | None = None,
        priority: int | Sequence[int] = 0,
        *,
        only_if_finite: bool = False,
    ) -> bool:
        """See :meth:`Store.pushpull`."""
        values = self._known(key, value)
        outputs = values if out is None else self._known(key, out)
        self._check(values)
        if only_if_finite and self._scheme is not None:
            # What comes out of compression is always finite, so this has to be asked before.
            if not all(bool(is_finite(one)) for pushed in values.values() for one in pushed):
                return False
            only_if_finite = False
        sums = self._sums(values)
        if only_if_finite and not all_finite(sums.values()):
            return False
        self._take(sums)
        for one, targets in outputs.items():
            if out is not None:
                if targets:
                    self._check_shapes(one, targets)
                    write_value(self._caught_up(one), targets)
            elif isinstance(sums[one], RowSparse):
                rows = sums[one].indices
                write_value(RowSparse(rows, self._caught_up(one, rows)[rows], sums[one].shape), targets)
            else:
                write_value(self._caught_up(one), targets)
        return True

    def row_sparse_pull(
        self, key: Key | Sequence[Key], row_ids: Tensor | Sequence[Tensor], priority: int | Sequence[int] = 0
    ) -> RowSparse | list[RowSparse]:
        """See :meth:`Store.row_sparse_pull`."""
        if isinstance(key, (list, tuple)):
            asked = self._known(key, row_ids)
            return [self._rows(one, ids) for one, many in asked.items() for ids in many]
        if isinstance(row_ids, Tensor):
            return self._rows(key, row_ids)  # pyrefly: ignore
        self._known(key, [])
        return [self._rows(key, ids) for ids in row_ids]  # pyrefly: ignore

    def set_value(self, key: Key, value: Tensor) -> None:
        """See :meth:`Store.set_value`."""
        self._known(key, value)
        self._check_shapes(key, [value])
        self._caught_up(key)
        self._stored[key].copy_(value.detach())
        if self._optimizer is not None:
            refresh_master_copy(self._optimizer, key, self._stored[key])

    # --- updating -----------------------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """See :meth:`Store.set_optimizer`."""
        self._optimizer = OptimizerUpdater(optimizer)
        self._updater = None

    def set_updater(self, updater: Updater) -> None:
        """See :meth:`Store.set_updater`."""
        if not callable(updater):
            raise ArgumentTypeError(f"An updater is called with (key, sum, stored); {updater!r} cannot be called.")
        self._updater = updater
        self._optimizer = None

    def save_optimizer_states(self) -> dict[str, Any]:
        """See :meth:`Store.save_optimizer_states`."""
        return self._updating().state_dict()

    def load_optimizer_states(self, states: Mapping[str, Any]) -> None:
        """See :meth:`Store.load_optimizer_states`."""
        self._updating().load_state_dict(states)

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

    def load_residuals(self, residuals: Sequence[Mapping[str, Any]]) -> None:
        """See :meth:`Store.load_residuals`."""
        if not residuals:
            return
        if self._scheme is None:
            raise StateError(
                "There are residuals of gradient compression, and this store compresses nothing.",
                advice="Give compression_params as they were, or leave the residuals out.",
            )
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
        return torch.device("cpu") if self._type == "local" else value.device

    def _updating(self) -> OptimizerUpdater:
        if self._optimizer is None:
            raise StateError("This store has no optimizer, so it has no states.", advice="Call set_optimizer() first.")
        return self._optimizer

    def _known(self, key: Key | Sequence[Key], values: Any) -> dict[Key, list[Any]]:
        keys = key_list(key)
        self._kind.check(keys)
        for one in keys:
            if one not in self._stored:
                raise ArgumentValueError(
                    f"The key {one!r} was never initialised.", advice="Call init() first.", key=one
                )
        return arranged(key, values)

    def _check(self, values: Mapping[Key, Sequence[Value]]) -> None:
        for key, pushed in values.items():
            if not pushed:
                raise ArgumentValueError(f"Nothing is pushed for the key {key!r}.")
            self._check_shapes(key, pushed)
            if self._scheme is not None:
                for value in pushed:
                    refuse_compression(key, value)
            for value in pushed:
                if isinstance(value, RowSparse):
                    value.checked()

    def _check_shapes(self, key: Key, values: Sequence[Value]) -> None:
        expected = self._stored[key].shape
        for value in values:
            if tuple(value.shape) != tuple(expected):
                raise ArgumentValueError(
                    f"The key {key!r} holds {tuple(expected)}, and a value of shape {tuple(value.shape)} was given.",
                    key=key,
                )

    def _sums(self, values: Mapping[Key, Sequence[Value]]) -> dict[Key, Any]:
        if self._scheme is None:
            return {
                key: sum_values(pushed, self._stored[key].device, in_fours=self._type == "local")
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

    def _rows(self, key: Key, row_ids: Tensor) -> RowSparse:
        if not isinstance(row_ids, Tensor) or row_ids.is_floating_point() or row_ids.dtype == torch.bool:
            kind = row_ids.dtype if isinstance(row_ids, Tensor) else type(row_ids).__name__
            raise ArgumentTypeError(f"Row numbers are a tensor of integers, not {kind}.")
        self._known(key, row_ids)
        table = self._stored[key]
        rows = torch.unique(row_ids.detach().reshape(-1).to(torch.int64))
        if len(rows) and (int(rows[0]) < 0 or int(rows[-1]) >= len(table)):
            wrong = int(rows[0]) if int(rows[0]) < 0 else int(rows[-1])
            raise ArgumentValueError(
                f"Row {wrong} was asked for, and the table {key!r} has the rows 0 to {len(table) - 1}.",
                row=wrong,
                key=key,
            )
        here = rows.to(table.device)
        values = self._caught_up(key, here)[here].to(row_ids.device)
        return RowSparse(rows, values, tuple(table.shape))


def refuse_compression(key: Key, value: Value) -> None:
    """Refuse what compression is not defined for.

    :raises ArgumentTypeError: the value is row-sparse, or not float32.
    """
    if isinstance(value, RowSparse) or value.layout != torch.strided:
        raise ArgumentTypeError(
            f"The value of {key!r} is row-sparse, and gradient compression takes dense ones.",
            advice="Leave compression_params out, or make the gradient dense (sparse=False).",
            key=key,
        )
    if value.dtype != torch.float32:
        raise ArgumentTypeError(
            f"The value of {key!r} is {value.dtype}, and gradient compression takes float32.",
            advice="Leave compression_params out, or keep the weights in float32.",
            key=key,
        )


for _name in ("local", "device"):
    register_built_in(_name, lambda name, _group: LocalStore(name))
