"""The store of synchronous distributed training: no servers, the workers exchange among themselves.

A round of pushes is an all-reduce. Where the store updates, it is a reduce-scatter, an update of every rank's own part,
and an all-gather (:mod:`ostinato.kvstore.sharded`). Every call that exchanges is a *collective*: all workers make the
same calls with the same keys in the same order. Pulls of dense keys are not: every rank has the last round's values.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, get_args

import torch
import torch.distributed as dist
from torch import Tensor

from ostinato.dist import Group, open_group
from ostinato.dist.per_rank import PerRank
from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.kvstore.buckets import BUCKET_BYTES, Bucket, plan_buckets
from ostinato.kvstore.buckets_exchange import Agreement, BucketExchange
from ostinato.kvstore.buckets_in_flight import Compressing, Flight
from ostinato.kvstore.built_in_store import (
    BuiltInStore,
    check_residuals,
    check_saved_states,
    checked_group,
    checked_optimizer,
    no_compression,
    refuse_compression,
)
from ostinato.kvstore.collective_agreement import checks_workers, require_same
from ostinato.kvstore.collective_calls import Collectives, Pending, Timing, seat_of_this_process
from ostinato.kvstore.collective_failures import naming_missing_workers
from ostinato.kvstore.collective_keys import CollectiveKeys
from ostinato.kvstore.collective_residuals import gather_residuals
from ostinato.kvstore.collective_states import CollectiveStates
from ostinato.kvstore.compression import CompressionScheme, Compressor, is_finite, residuals_for_rank
from ostinato.kvstore.compression.exchange import Route, cheaper_route
from ostinato.kvstore.keys import single_key
from ostinato.kvstore.registry import register_built_in
from ostinato.kvstore.replica_updaters import refresh_master_copy
from ostinato.kvstore.row_sparse_exchange import sum_of_rows
from ostinato.kvstore.row_sparse_tables import Table, big_array_bound, checked_row_ids
from ostinato.kvstore.sharded import ShardedUpdate
from ostinato.kvstore.store import Key, Outputs, Value, Values
from ostinato.kvstore.summing import as_value, sum_values, write_value
from ostinato.optim.argument_checks import require_mapping, require_number
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Optimizer, Updater
from ostinato.runs.row_cut import RowCut, RowCutTable

_log = logging.getLogger(__name__)


class CollectiveStore(BuiltInStore):
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
        super().__init__(type)
        self._given_group = checked_group(group)
        self._group: Group | None = None
        self._collectives: Collectives | None = None
        self._exchanged: BucketExchange | None = None
        if not require_number("bucket_bytes", bucket_bytes) > 0:
            raise ArgumentValueError(f"bucket_bytes is {bucket_bytes!r}.", advice="Give a number of bytes above 0.")
        if route not in (None, *get_args(Route)):
            raise ArgumentValueError(
                f"There is no route called {route!r}.", advice=f"Use one of {get_args(Route)}, or None."
            )
        self._bucket_bytes = bucket_bytes
        self._route: Route | None = route
        self._keys = CollectiveKeys()
        self._states = CollectiveStates(self._keys)
        self._compressor: Compressor | None = None
        self._watched: dict[Key, Sequence[Tensor]] = {}
        self._passed_over: set[Key] = set()

    def __repr__(self) -> str:
        return f"CollectiveStore({self._type!r}, {len(self._keys)} keys)"

    # --- who takes part -------------------------------------------------------------------------------------------

    def _seat(self) -> tuple[int, int]:
        group = self._group or self._given_group
        if group is not None:
            return group.rank, group.size
        return seat_of_this_process()

    @property
    def handed_over(self) -> Counter[str]:
        """Bytes that this worker has handed to each kind of collective so far; see :class:`Collectives`."""
        return Counter() if self._collectives is None else self._collectives.handed_over

    def time_collectives(self, timing: Timing) -> None:
        """Enter a context around each collective that begins from now on, and around each wait for one.

        :param timing: makes a context. It is entered in whatever thread backward runs in, too.
        """
        self._open().timing = timing

    def _open(self) -> Collectives:
        if self._collectives is None:
            group: Group = self._given_group if self._given_group is not None else open_group()
            self._group = group
            self._collectives = Collectives(dist.group.WORLD if group.size > 1 else None)
            self._exchanged = BucketExchange(
                self._collectives, self._any, lambda: naming_missing_workers(group), self._bucket_bytes
            )
            self._keys.buckets = self._exchanged
        return self._collectives

    @property
    def _buckets(self) -> BucketExchange:
        self._open()
        assert self._exchanged is not None
        return self._exchanged

    def _any(self, flags: Sequence[bool]) -> list[bool]:
        collectives = self._open()
        assert self._group is not None
        if self._group.size == 1 or not flags:
            return list(flags)
        with naming_missing_workers(self._group), collectives.timed():  # who comes late is waited for here
            return [total > 0 for total in self._group.sum_of([float(flag) for flag in flags])]

    # --- keys and values ------------------------------------------------------------------------------------------

    def init(self, key: Key | Sequence[Key], value: Values) -> None:
        """See :meth:`Store.init`. A collective."""
        collectives = self._open()
        firsts = self._firsts(key, value)
        self._require_same("initialises", {k: (tuple(v.shape), str(v.dtype)) for k, v in firsts.items()})
        dense: dict[Key, Tensor] = {}
        with naming_missing_workers(self._workers), torch.no_grad():
            for one, first in firsts.items():
                if isinstance(first, RowSparse):
                    self._keys.tables[one] = self._new_table(one, first)
                    self._states.take_placed()
                else:
                    self._keys.shapes[one] = (first.shape, first.dtype, first.device)
                    dense[one] = first.detach().clone(memory_format=torch.contiguous_format)
            running: list[tuple[Tensor | None, Pending, Bucket]] = []
            for bucket in plan_buckets([(k, *self._keys.shapes[k]) for k in dense], bucket_bytes=self._bucket_bytes):
                if len(bucket.slots) == 1:  # nothing to put together
                    running.append((None, collectives.broadcast(dense[bucket.slots[0].key]), bucket))
                    continue
                flat = torch.cat([dense[slot.key].reshape(-1) for slot in bucket.slots])
                running.append((flat, collectives.broadcast(flat), bucket))
            for flat, pending, bucket in running:
                pending.wait()
                if flat is not None:
                    for slot in bucket.slots:
                        dense[slot.key].copy_(slot.of(flat))
        self._keys.stored.update(dense)

    def _new_table(self, key: Key, rows: RowSparse) -> Table:
        assert self._collectives is not None
        is_large = torch.Size(rows.shape).numel() >= big_array_bound()
        updater = self._keys.updater
        whole_rule = updater is not None and updater.optimizer.cut == "tensors"
        is_cut = is_large and not whole_rule
        return Table(key, rows, self._collectives, is_cut=is_cut, updater=updater, label=self._label(key))

    def push(self, key: Key | Sequence[Key], value: Values, priority: int | Sequence[int] = 0) -> None:
        """See :meth:`Store.push`. A collective: it returns when all workers have pushed."""
        values = self._known(key, value)
        self._exchange(values, {}, only_if_finite=False)

    def pull(
        self, key: Key | Sequence[Key], out: Outputs, priority: int | Sequence[int] = 0, ignore_sparse: bool = True
    ) -> None:
        """See :meth:`Store.pull`. A collective only for whole tables that are cut over the ranks."""
        for one, outputs in self._known(key, out).items():
            if one in self._keys.tables:
                if not ignore_sparse:
                    with naming_missing_workers(self._workers):
                        whole = self._keys.tables[one].whole()
                    self._write(one, whole, outputs)
                elif one not in self._passed_over:
                    self._passed_over.add(one)
                    _log.info("pull passes over the table %r, whose rows are pulled one by one", one)
                continue
            if outputs:
                self._write(one, self._keys.value(one), outputs)

    def pushpull(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Outputs | None = None,
        priority: int | Sequence[int] = 0,
        *,
        only_if_finite: bool = False,
    ) -> bool:
        """See :meth:`Store.pushpull`. A collective. A worker that has nothing for a key may give an empty list."""
        values = self._known(key, value)
        outputs = values if out is None else self._known(key, out)
        return self._exchange(values, outputs, only_if_finite=only_if_finite, in_place=out is None)

    def _rows(self, key: Key, row_ids: Tensor) -> RowSparse:
        with naming_missing_workers(self._workers):
            if key in self._keys.tables:
                return self._keys.tables[key].pull(row_ids)
            # A dense weight is whole everywhere, so its rows can be looked up like those of a small table.
            rows = checked_row_ids(self._label(key), row_ids, self._shape(key))
            stored = self._keys.value(key, rows)
            return RowSparse(rows, stored[rows.to(stored.device)].to(row_ids.device), tuple(stored.shape))

    def set_value(self, key: Key, value: Tensor) -> None:
        """See :meth:`Store.set_value`. A collective."""
        self._known(single_key(key), [])
        self._check_tensor(key, value)
        collectives = self._open()
        keys = self._keys
        with naming_missing_workers(self._workers), torch.no_grad():
            if key in keys.tables:
                keys.tables[key].replace(value)
                if keys.updater is not None:
                    refresh_master_copy(keys.updater, key, keys.tables[key].stored)
                return
            received = value.detach().clone(memory_format=torch.contiguous_format)
            collectives.broadcast(received).wait()
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
        in_place: bool = False,
    ) -> bool:
        self._open()
        given = {key: [as_value(one) for one in pushed] for key, pushed in values.items()}
        for key, pushed in given.items():
            self._check_pushed(key, pushed)
        if checks_workers():
            self._require_same("exchanges", dict.fromkeys(given, only_if_finite))
        with naming_missing_workers(self._workers), torch.no_grad():
            dense, sparse, agreement = self._agree_on_rows(given)
            flights = self._buckets.exchange(dense, agreement)
            sums = [(flight.bucket, flight.total()) for flight in flights]
            rows = {key: self._sum_rows(key, given[key]) for key in sparse}
            if only_if_finite and not self._all_finite(flights, sums, list(rows.values())):
                self._buckets.land(flights)
                return False
            for flight in flights:
                if flight.proposal is not None and self._compressor is not None:
                    self._compressor.accept(flight.proposal, only=set(dense))
            if self._keys.updater is not None:
                self._update(sums, set(dense), rows)
            self._deliver(sums, dense, rows, outputs, in_place=in_place)
            self._buckets.land(flights)
        return True

    def _agree_on_rows(
        self, given: Mapping[Key, Sequence[Value]]
    ) -> tuple[dict[Key, list[Tensor]], list[Key], Agreement]:
        """Which keys of this call travel in buckets, with their gradients, and which as rows; the same on all ranks."""
        undecided = [key for key in given if key not in self._keys.tables and key not in self._keys.row_keys]
        self._place(undecided)
        dense = {key: [one for one in given[key] if isinstance(one, Tensor)] for key in undecided}
        come_as_rows = [any(isinstance(value, RowSparse) for value in given[key]) for key in undecided]
        agreement, answers = self._buckets.compare(dense, come_as_rows)
        found = [key for key, is_sparse in zip(undecided, answers, strict=True) if is_sparse]
        if found:
            self._buckets.drop_all(dense, agreement)
            self._exchange_as_rows(found)
            dense = {key: pushed for key, pushed in dense.items() if key not in found}
            agreement, _ = self._buckets.compare(dense)
        return dense, [key for key in given if key not in dense], agreement

    def _exchange_as_rows(self, keys: Sequence[Key]) -> None:
        """Keys turned out to have row-sparse gradients: leave them out of the buckets from now on."""
        self._keys.row_keys.update(keys)
        if self._keys.sharded is None or self._keys.updater is None:
            self._place([key for key in self._buckets.start_anew() if key not in self._keys.row_keys])
            if self._watched:
                self._buckets.watch({})
            return
        # Weights and states of the others stay where they are. These are whole on every rank now.
        states = self._keys.updater.state_dict()
        whole = self._keys.sharded.whole_states({key: states["states"][key] for key in keys if key in states["states"]})
        self._keys.updater.load_state_dict({**states, "states": {**states["states"], **whole}})
        self._buckets.leave_out(keys)
        self._keys.stored.update({key: self._keys.stored[key].clone() for key in keys})

    def _sum_rows(self, key: Key, pushed: Sequence[Value]) -> RowSparse:
        shape, dtype, device = self._keys.home(key)
        rows = [one if isinstance(one, RowSparse) else _as_rows(one) for one in pushed]
        own = sum_values(rows, device) if rows else RowSparse.empty(tuple(shape), dtype=dtype, device=device)
        assert isinstance(own, RowSparse)
        if key in self._keys.tables:
            return self._keys.tables[key].sum(own)
        return sum_of_rows(own, self._open())

    def _all_finite(
        self, flights: Sequence[Flight], sums: Sequence[tuple[Bucket, Tensor]], rows: Sequence[RowSparse]
    ) -> bool:
        """Whether everything that would be applied is finite, with the same answer on every rank."""
        if self._compressor is not None:
            mine = all(flight.is_finite for flight in flights)
        else:
            mine = all(bool(is_finite(own[: bucket.size])) for bucket, own in sums)
        mine = mine and all(bool(is_finite(one.values)) for one in rows)
        (wrong,) = self._any([not mine])
        return not wrong

    def _update(self, sums: Sequence[tuple[Bucket, Tensor]], keys: set[Key], rows: Mapping[Key, RowSparse]) -> None:
        there = self._keys
        assert there.updater is not None
        if sums:
            assert there.sharded is not None
            there.sharded.update(sums, keys)
        if rows:
            there.updater(list(rows), list(rows.values()), [there.with_rows(key) for key in rows])

    def _deliver(
        self,
        sums: Sequence[tuple[Bucket, Tensor]],
        dense: Mapping[Key, Sequence[Tensor]],
        rows: Mapping[Key, RowSparse],
        outputs: Mapping[Key, Sequence[Tensor]],
        *,
        in_place: bool,
    ) -> None:
        totals: dict[Key, Tensor] = {}
        if self._keys.updater is None:  # the sums are what is stored and pulled
            totals = {slot.key: slot.of(flat) for bucket, flat in sums for slot in bucket.slots if slot.key in dense}
            self._keys.replace(totals, rows)
        for key, targets in outputs.items():
            if not targets:
                continue
            if in_place and key in rows:
                # Replicas receive the sum of their gradients in the form they gave it.
                write_value(rows[key], [target for target in targets if isinstance(target, Tensor)])
            elif key in totals:
                self._hand_over(key, totals[key], targets, in_place=in_place)
            elif key in self._keys.tables:
                self._write(key, self._keys.tables[key].whole(), targets)
            else:
                self._write(key, self._keys.value(key), targets)

    def _hand_over(self, key: Key, total: Tensor, targets: Sequence[Tensor], *, in_place: bool) -> None:
        parameters = self._watched.get(key, ())
        grad = parameters[0].grad if len(parameters) == 1 and len(targets) == 1 else None
        if (
            in_place
            and grad is not None
            and grad.data_ptr() == targets[0].data_ptr()
            and grad.shape == total.shape
            and grad.stride() == total.stride()
            and grad.dtype == total.dtype
        ):
            grad.data = total
            targets[0].data = total
            return
        self._write(key, total, targets)

    # --- buckets --------------------------------------------------------------------------------------------------

    def _place(self, keys: Sequence[Key]) -> None:
        """Put keys that have no bucket yet into new ones, for good: slices of weights and states belong to them."""
        new = [key for key in keys if key not in self._buckets]
        if not new:
            return
        updater = self._keys.updater
        if updater is not None and self._keys.sharded is None:
            self._keys.sharded = ShardedUpdate(updater, self._open())
            self._buckets.scattered = True
        buckets = self._buckets.place(
            [(key, self._keys.shapes[key]) for key in new],
            owned=self._keys.sharded is not None and not self._keys.sharded.cuts_anywhere,
            # A master copy is worth nothing if the sum was rounded, or had no room, in 16 bits.
            widened=updater is not None and updater.optimizer.multi_precision,
        )
        if self._keys.sharded is not None:
            for bucket in buckets:
                self._keys.stored.update(self._keys.sharded.take(bucket, self._keys.stored))
        self._states.take_placed()

    def watch(self, parameters: Mapping[Key, Sequence[Tensor]]) -> None:
        """See :meth:`Store.watch`. All workers watch the same keys."""
        require_mapping("The parameters to watch", parameters, "Give the replicas of each parameter by key.")
        self._known(list(parameters), [[]] * len(parameters))
        new = {key: list(replicas) for key, replicas in parameters.items() if key not in self._watched}
        if not new:
            return
        self._watched.update(new)
        if self._keys.updater is None:
            for key in new:
                self._keys.stored.pop(key, None)
        announced = {k for k, p in new.items() if getattr(p[0], "grad_stype", "default") == "row_sparse"}
        self._keys.row_keys |= announced
        dense = {key: replicas for key, replicas in new.items() if key not in announced}
        self._place(list(dense))
        if self._open().size > 1:
            self._buckets.watch(dense)

    def holding(self) -> AbstractContextManager[None]:
        """See :meth:`Store.holding`."""
        return nullcontext() if self._exchanged is None else self._exchanged.holding()

    # --- updating on the store ------------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """See :meth:`Store.set_optimizer`. The update is sharded over the ranks.

        :raises StateError: values were exchanged before.
        """
        made = checked_optimizer(optimizer)
        if self._keys.tables or (self._exchanged is not None and self._exchanged.buckets):
            raise StateError(
                "An optimizer was given to a store that has exchanged values already.",
                advice="Call set_optimizer() before the first key is initialised.",
            )
        self._keys.updater = Updater(made)

    def save_optimizer_states(self) -> dict[str, Any]:
        """See :meth:`Store.save_optimizer_states`. A collective; every rank receives all states."""
        if self._group is None:
            return self._states.whole()
        with naming_missing_workers(self._workers):
            return self._states.whole()

    def optimizer_states_in_parts(self) -> dict[str, Any]:
        """See :meth:`Store.optimizer_states_in_parts`. No collective."""
        return self._states.in_parts() if self.num_workers > 1 else self._states.whole()

    def load_optimizer_states(self, states: Mapping[str, Any]) -> None:
        """See :meth:`Store.load_optimizer_states`. Every rank gives the whole states."""
        self._states.load(check_saved_states(states))

    def rows_in_parts(self, key: Key) -> Tensor | RowCut:
        """See :meth:`Store.rows_in_parts`. No collective."""
        return self._table(key).rows_in_parts()

    def load_rows(self, key: Key, rows: Tensor | RowCutTable) -> None:
        """See :meth:`Store.load_rows`. No collective."""
        table = self._table(key)
        self._check_rows(key, rows)
        table.load_rows(rows)

    def _table(self, key: Key) -> Table:
        self._known(single_key(key), [])
        if key not in self._keys.tables:
            raise ArgumentTypeError(
                f"{self._label(key)} is no table, so it has no rows of its own.", advice="Pull it whole."
            )
        return self._keys.tables[key]

    # --- compression ----------------------------------------------------------------------------------------------

    def set_gradient_compression(self, parameters: Mapping[str, Any]) -> None:
        """See :meth:`Store.set_gradient_compression`. The sum over a worker's replicas is compressed once."""
        scheme = CompressionScheme.from_params(parameters)
        size = self._open().size
        self._compressor = Compressor(scheme)
        self._buckets.compressing = Compressing(self._compressor, self._route or cheaper_route(scheme, size))

    def residuals(self) -> list[dict[str, Any]]:
        """See :meth:`Store.residuals`: one state for each worker. A collective where something is compressed; every
        worker receives all of them."""
        if self._compressor is None:
            return []
        with naming_missing_workers(self._workers):
            return gather_residuals(
                self._compressor.state_dict(), self._workers, self._open(), lambda key: self._keys.home(key)[2]
            )

    def residuals_in_parts(self) -> list[dict[str, Any]] | PerRank:
        """See :meth:`Store.residuals_in_parts`. No collective."""
        if self._compressor is None or self.num_workers == 1:
            return self.residuals()
        return PerRank([self._compressor.state_dict()])

    def load_residuals(self, residuals: Sequence[Mapping[str, Any]]) -> None:
        """See :meth:`Store.load_residuals`. With another number of workers, what is owed in sum stays the same; see
        :func:`~ostinato.kvstore.compression.residuals_for_rank`."""
        if not check_residuals(residuals):
            return
        if self._compressor is None:
            raise no_compression()
        self._compressor.load_sum_of(residuals_for_rank(residuals, *self._seat()))

    # --- working with a trainer -----------------------------------------------------------------------------------

    def barrier(self) -> None:
        """See :meth:`Store.barrier`."""
        self._open()
        self._workers.barrier()

    def close(self) -> None:
        """See :meth:`Store.close`. A group that the store opened itself is closed as well."""
        if self._exchanged is not None:
            self._exchanged.close()
        self._keys.clear()
        if self._group is not None and self._given_group is None:
            self._group.close()
        self._group = self._collectives = self._exchanged = None

    # --- inside ---------------------------------------------------------------------------------------------------

    @property
    def _workers(self) -> Group:
        assert self._group is not None, "a store is opened before it exchanges"
        return self._group

    def _has(self, key: Key) -> bool:
        return key in self._keys

    def _shape(self, key: Key) -> torch.Size:
        return self._keys.home(key)[0]

    def _check_pushed(self, key: Key, pushed: Sequence[Value]) -> None:
        for value in pushed:
            self._check_shape(key, value, "was pushed")
            if self._compressor is not None:
                refuse_compression(self._label(key), value)
            if isinstance(value, RowSparse):
                value.checked()

    def _require_same(self, verb: str, facts: Mapping[Any, Any]) -> None:
        said = repr(list(facts.items()))
        if self._keys.updater is not None:
            settings = self._keys.updater.optimizer
            said += f" rate {settings.learning_rate} wd {settings.wd} rescale_grad {settings.rescale_grad}"
        require_same(self._workers, verb, said)

    def check_workers_agree(self, facts: Mapping[str, Any]) -> None:
        """Compare facts such as rates and scales over the workers, when the environment asks for such checks
        (:data:`~ostinato.kvstore.collective_agreement.CHECK_VARIABLE`). A collective then.

        :raises StateError: a worker says something else; the first difference is named.
        """
        self._open()
        if checks_workers():
            self._require_same("uses", facts)


def _as_rows(dense: Tensor) -> RowSparse:
    """The rows of a dense gradient that are not zero."""
    flat = dense.detach().reshape(len(dense), -1)
    rows = torch.nonzero((flat != 0).any(dim=1)).reshape(-1)
    return RowSparse(rows, dense.detach()[rows], tuple(dense.shape))


for _name in ("dist_sync", "dist_device_sync"):
    register_built_in(_name, lambda name, group: CollectiveStore(name, group))
