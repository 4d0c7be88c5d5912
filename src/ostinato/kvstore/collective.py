"""The store of synchronous distributed training: no servers, the workers exchange among themselves.

A round of pushes is an all-reduce. Where the store updates, it is a reduce-scatter, an update of every rank's own part,
and an all-gather (:mod:`ostinato.kvstore.sharded`). Every call that exchanges is a *collective*: all workers make the
same calls with the same keys in the same order. Pulls of dense keys are not: every rank has the last round's values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, get_args

import torch
from torch import Tensor

from ostinato.dist import Group
from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.kvstore.buckets import BUCKET_BYTES
from ostinato.kvstore.buckets_broadcast import broadcast_together
from ostinato.kvstore.buckets_in_flight import Compressing
from ostinato.kvstore.collective_agreement import checks_workers
from ostinato.kvstore.collective_calls import Timing
from ostinato.kvstore.collective_keys import CollectiveKeys
from ostinato.kvstore.collective_residuals import gather_residuals
from ostinato.kvstore.collective_rounds import CollectiveRounds, Round
from ostinato.kvstore.collective_states import CollectiveStates
from ostinato.kvstore.collective_workers import CollectiveWorkers
from ostinato.kvstore.compression import CompressionScheme, Compressor
from ostinato.kvstore.compression.exchange import Route, cheaper_route
from ostinato.kvstore.distributed_store import DistributedStore
from ostinato.kvstore.registry import register_built_in
from ostinato.kvstore.replica_updaters import refresh_master_copy
from ostinato.kvstore.row_sparse_tables import Table, big_array_bound, checked_row_ids
from ostinato.kvstore.store import Key, Value, Values
from ostinato.kvstore.store_arguments import check_saved_states, checked_optimizer
from ostinato.kvstore.summing import write_value
from ostinato.optim.argument_checks import require_mapping, require_number
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Optimizer, Updater
from ostinato.runs.row_cut import RowCut, RowCutTable


class CollectiveStore(DistributedStore):
    """Synchronous training over ranks: ``dist_sync``, which is also ``dist_device_sync``.

    Keys that are watched (:meth:`watch`) start their exchange during backward, bucket by bucket, in bucket order. When
    backward has written the gradient of a parameter with one replica, what :meth:`pushpull` delivers is not copied into
    it: the gradient becomes a view of the bucket, so a *detached* alias of the old gradient keeps the local one. Of
    watched keys the store keeps no copy where the replicas update: their sums are in the gradients.

    Memory beside parameters and gradients: one bucket buffer or two for each dense key; compressed, residuals on top;
    with the update on the store, one copy of the weights and this rank's part of the optimizer state.

    :param type: the name it was created by.
    :param group: the workers; ``None`` for those of this process, which are then met at the first call that needs them.
    :param bucket_bytes: size of a bucket.
    :param route: how compressed gradients travel; ``None`` for the way with less traffic.
    """

    def __init__(
        self,
        type: str = "dist_sync",
        group: Group | None = None,
        *,
        bucket_bytes: int = BUCKET_BYTES,
        route: Route | None = None,
    ) -> None:
        super().__init__(type, group)
        if not require_number("bucket_bytes", bucket_bytes) > 0:
            raise ArgumentValueError(f"bucket_bytes is {bucket_bytes!r}.", advice="Give a number of bytes above 0.")
        if route not in (None, *get_args(Route)):
            raise ArgumentValueError(
                f"There is no route called {route!r}.", advice=f"Use one of {get_args(Route)}, or None."
            )
        self._bucket_bytes = bucket_bytes
        self._route: Route | None = route
        self._workers = CollectiveWorkers(self._group)
        self._keys = CollectiveKeys()
        self._states = CollectiveStates(self._keys)
        self._rounds = CollectiveRounds(self._keys, self._states, self._workers, bucket_bytes)

    def __repr__(self) -> str:
        return f"CollectiveStore({self._type!r}, {len(self._keys)} keys)"

    # --- who takes part -------------------------------------------------------------------------------------------

    def _seat(self) -> tuple[int, int]:
        return self._workers.seat

    @property
    def handed_over(self) -> Counter[str]:
        """Bytes that this worker has handed to each kind of collective so far; see :class:`Collectives`."""
        return self._workers.meet().handed_over if self._workers.are_met else Counter()

    def time_collectives(self, timing: Timing) -> None:
        """Enter a context around each collective that begins from now on, and around each wait for one.

        :param timing: makes a context. It is entered in whatever thread backward runs in, too.
        """
        self._workers.meet().timing = timing

    def _any(self, flags: Sequence[bool]) -> list[bool]:
        return self._workers.any_of(flags)

    # --- keys and values ------------------------------------------------------------------------------------------

    def init(self, key: Key | Sequence[Key], value: Values) -> None:
        """See :meth:`Store.init`. A collective."""
        collectives = self._workers.meet()
        firsts = self._firsts(key, value)
        self._require_same("initialises", {k: (tuple(v.shape), str(v.dtype)) for k, v in firsts.items()})
        dense: dict[Key, Tensor] = {}
        with self._workers.naming_missing(), torch.no_grad():
            for one, first in firsts.items():
                if isinstance(first, RowSparse):
                    self._keys.tables[one] = self._new_table(one, first)
                    self._states.take_placed()
                else:
                    self._keys.shapes[one] = (first.shape, first.dtype, first.device)
                    dense[one] = first.detach().clone(memory_format=torch.contiguous_format)
            broadcast_together(dense, collectives, self._bucket_bytes)
        self._keys.stored.update(dense)

    def _new_table(self, key: Key, rows: RowSparse) -> Table:
        is_large = torch.Size(rows.shape).numel() >= big_array_bound()
        updater = self._keys.updater
        whole_rule = updater is not None and updater.optimizer.cut == "tensors"
        is_cut = is_large and not whole_rule
        return Table(key, rows, self._workers.meet(), is_cut=is_cut, updater=updater, label=self._label(key))

    def _read(self, outputs: Mapping[Key, Sequence[Tensor]]) -> None:
        for key, targets in outputs.items():
            if key in self._keys.tables:
                with self._workers.naming_missing():
                    whole = self._keys.tables[key].whole()
                self._write(key, whole, targets)
            elif targets:
                self._write(key, self._keys.value(key), targets)

    def _rows(self, key: Key, row_ids: Tensor) -> RowSparse:
        with self._workers.naming_missing():
            if key in self._keys.tables:
                return self._keys.tables[key].pull(row_ids)
            # A dense weight is whole everywhere, so its rows can be looked up like those of a small table.
            rows = checked_row_ids(self._label(key), row_ids, self._shape(key))
            stored = self._keys.value(key, rows)
            return RowSparse(rows, stored[rows.to(stored.device)].to(row_ids.device), tuple(stored.shape))

    def _replace(self, key: Key, value: Tensor) -> None:
        keys = self._keys
        with self._workers.naming_missing():
            if key in keys.tables:
                keys.tables[key].replace(value)
                if keys.updater is not None:
                    refresh_master_copy(keys.updater, key, keys.tables[key].stored)
                return
            received = value.clone(memory_format=torch.contiguous_format)
            self._workers.meet().broadcast(received).wait()
            if key in keys.stored:
                keys.value(key).copy_(received)  # what was put off belongs to the old value
                if keys.updater is not None:
                    refresh_master_copy(keys.updater, key, keys.updated_part(key))

    # --- the exchange ---------------------------------------------------------------------------------------------

    def _exchange(
        self,
        values: Mapping[Key, Sequence[Value]],
        outputs: Mapping[Key, Sequence[Tensor]],
        *,
        only_if_finite: bool,
        in_place: bool,
    ) -> bool:
        given = {key: self._checked(key, pushed) for key, pushed in values.items()}
        self._workers.meet()
        if checks_workers():
            self._require_same("exchanges", dict.fromkeys(given, only_if_finite))
        with self._workers.naming_missing(), torch.no_grad():
            done = self._rounds.add_up(given, only_if_finite=only_if_finite)
            if done is None:
                return False
            self._deliver(done, outputs, in_place=in_place)
            self._rounds.land(done)
        return True

    def _deliver(self, done: Round, outputs: Mapping[Key, Sequence[Tensor]], *, in_place: bool) -> None:
        for key, targets in outputs.items():
            if not targets:
                continue
            if in_place and key in done.rows:
                # Replicas receive the sum of their gradients in the form they gave it.
                write_value(done.rows[key], [target for target in targets if isinstance(target, Tensor)])
            elif key in done.dense:
                if not (in_place and self._rounds.lend(key, done.dense[key], targets)):
                    self._write(key, done.dense[key], targets)
            elif key in self._keys.tables:
                self._write(key, self._keys.tables[key].whole(), targets)
            else:
                self._write(key, self._keys.value(key), targets)

    def watch(self, parameters: Mapping[Key, Sequence[Tensor]]) -> None:
        """See :meth:`Store.watch`. All workers watch the same keys."""
        require_mapping("The parameters to watch", parameters, "Give the replicas of each parameter by key.")
        self._known(list(parameters), [[]] * len(parameters))
        self._rounds.watch(parameters)

    def holding(self) -> AbstractContextManager[None]:
        """See :meth:`Store.holding`."""
        return self._rounds.holding()

    # --- updating on the store ------------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """See :meth:`Store.set_optimizer`. The update is sharded over the ranks.

        :raises StateError: values were exchanged before.
        """
        made = checked_optimizer(optimizer)
        if self._keys.tables or (self._keys.buckets is not None and self._keys.buckets.buckets):
            raise StateError(
                "An optimizer was given to a store that has exchanged values already.",
                advice="Call set_optimizer() before the first key is initialised.",
            )
        self._keys.updater = Updater(made)

    def save_optimizer_states(self) -> dict[str, Any]:
        """See :meth:`Store.save_optimizer_states`. A collective; every rank receives all states."""
        with self._workers.naming_missing():
            return self._states.whole()

    def optimizer_states_in_parts(self) -> dict[str, Any]:
        """See :meth:`Store.optimizer_states_in_parts`. No collective."""
        return self._states.in_parts() if self.num_workers > 1 else self._states.whole()

    def load_optimizer_states(self, states: Mapping[str, Any]) -> None:
        """See :meth:`Store.load_optimizer_states`. Every rank gives the whole states."""
        self._states.load(check_saved_states(states))

    def _own_rows(self, key: Key) -> Tensor | RowCut:
        """No collective."""
        return self._table(key).rows_in_parts()

    def _take_rows(self, key: Key, rows: Tensor | RowCutTable) -> None:
        """No collective."""
        self._table(key).load_rows(rows)

    def _table(self, key: Key) -> Table:
        if key not in self._keys.tables:
            raise ArgumentTypeError(
                f"{self._label(key)} is no table, so it has no rows of its own.", advice="Pull it whole."
            )
        return self._keys.tables[key]

    # --- compression ----------------------------------------------------------------------------------------------

    def set_gradient_compression(self, parameters: Mapping[str, Any]) -> None:
        """See :meth:`Store.set_gradient_compression`. The sum over a worker's replicas is compressed once."""
        scheme = CompressionScheme.from_params(parameters)
        size = self._workers.meet().size
        self._scheme, self._compressor = scheme, Compressor(scheme)
        self._rounds.buckets.compressing = Compressing(self._compressor, self._route or cheaper_route(scheme, size))

    def residuals(self) -> list[dict[str, Any]]:
        """See :meth:`Store.residuals`: one state for each worker. A collective where something is compressed; every
        worker receives all of them."""
        if self._compressor is None:
            return []
        with self._workers.naming_missing():
            return gather_residuals(self._compressor.state_dict(), self._workers, lambda key: self._keys.home(key)[2])

    # --- working with a trainer -----------------------------------------------------------------------------------

    def barrier(self) -> None:
        """See :meth:`Store.barrier`."""
        self._workers.group.barrier()

    def close(self) -> None:
        """See :meth:`Store.close`. A group that the store opened itself is closed as well."""
        self._rounds.close()
        self._keys.clear()
        self._workers.leave()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _has(self, key: Key) -> bool:
        return key in self._keys

    def _is_table(self, key: Key) -> bool:
        return key in self._keys.tables

    def _shape(self, key: Key) -> torch.Size:
        return self._keys.home(key)[0]

    def _require_same(self, verb: str, facts: Mapping[Any, Any]) -> None:
        said = repr(list(facts.items()))
        if self._keys.updater is not None:
            settings = self._keys.updater.optimizer
            said += f" rate {settings.learning_rate} wd {settings.wd} rescale_grad {settings.rescale_grad}"
        self._workers.require_same(verb, said)

    def check_workers_agree(self, facts: Mapping[str, Any]) -> None:
        """Compare facts such as rates and scales over the workers, when the environment asks for such checks
        (:data:`~ostinato.kvstore.collective_agreement.CHECK_VARIABLE`). A collective then.

        :raises StateError: a worker says something else; the first difference is named.
        """
        if checks_workers():
            self._require_same("uses", facts)


for _name in ("dist_sync", "dist_device_sync"):
    register_built_in(_name, lambda name, group: CollectiveStore(name, group))
