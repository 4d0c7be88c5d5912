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
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ostinato.dist import Group, open_group
from ostinato.errors import ArgumentValueError, StateError
from ostinato.kvstore.buckets import BUCKET_BYTES, Bucket, plan_buckets
from ostinato.kvstore.buckets_exchange import Agreement, BucketExchange
from ostinato.kvstore.buckets_in_flight import Compressing, Flight
from ostinato.kvstore.collective_agreement import checks_workers, require_same
from ostinato.kvstore.collective_calls import Collectives, Pending, seat_of_this_process
from ostinato.kvstore.collective_failures import naming_missing_workers
from ostinato.kvstore.collective_residuals import gather_residuals
from ostinato.kvstore.compression import CompressionScheme, Compressor, is_finite, residuals_for_rank
from ostinato.kvstore.compression.exchange import Route, cheaper_route
from ostinato.kvstore.keys import KeyKind, arranged, key_list
from ostinato.kvstore.local import refuse_compression
from ostinato.kvstore.registry import register_built_in
from ostinato.kvstore.replica_updaters import refresh_master_copy
from ostinato.kvstore.row_sparse_exchange import sum_of_rows
from ostinato.kvstore.row_sparse_tables import Table, big_array_bound, checked_row_ids
from ostinato.kvstore.sharded import ShardedUpdate
from ostinato.kvstore.store import Capability, Key, Outputs, Store, Value, Values
from ostinato.kvstore.summing import as_value, sum_values, write_value
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Optimizer, Updater

_log = logging.getLogger(__name__)


class CollectiveStore(Store):
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

    built_in = True

    def __init__(
        self,
        type: str = "dist_sync",
        group: Group | None = None,
        *,
        bucket_bytes: int = BUCKET_BYTES,
        route: Route | None = None,
    ) -> None:
        self._type = type
        self._given_group = group
        self._group: Group | None = None
        self._collectives: Collectives | None = None
        self._exchanged: BucketExchange | None = None
        self._bucket_bytes = bucket_bytes
        self._route: Route | None = route
        self._kind = KeyKind()
        self._shapes: dict[Key, tuple[torch.Size, torch.dtype, torch.device]] = {}
        self._stored: dict[Key, Tensor] = {}
        self._tables: dict[Key, Table] = {}
        self._row_keys: set[Key] = set()  # dense weights whose gradients come as rows
        self._updater: Updater | None = None
        self._sharded: ShardedUpdate | None = None
        self._waiting_states: dict[Key, Any] = {}  # loaded, and not cut yet
        self._compressor: Compressor | None = None
        self._watched: dict[Key, Sequence[Tensor]] = {}
        self._passed_over: set[Key] = set()

    def __repr__(self) -> str:
        return f"CollectiveStore({self._type!r}, {len(self._shapes) + len(self._tables)} keys)"

    # --- who takes part -------------------------------------------------------------------------------------------

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
        group = self._group or self._given_group
        if group is not None:
            return group.rank, group.size
        return seat_of_this_process()

    def is_capable(self, capability: Capability) -> bool:
        """Everything.

        :raises ArgumentValueError: there is no such capability.
        """
        if capability not in ("optimizer", "row_sparse", "compression", "live_optimizer"):
            raise ArgumentValueError(
                f"There is no capability {capability!r}.",
                advice="Ask for optimizer, row_sparse, compression or live_optimizer.",
            )
        return True

    @property
    def handed_over(self) -> Counter[str]:
        """Bytes that this worker has handed to each kind of collective so far; see :class:`Collectives`."""
        return Counter() if self._collectives is None else self._collectives.handed_over

    def _open(self) -> Collectives:
        if self._collectives is None:
            group: Group = self._given_group if self._given_group is not None else open_group()
            self._group = group
            self._collectives = Collectives(dist.group.WORLD if group.size > 1 else None)
            self._exchanged = BucketExchange(
                self._collectives, self._any, lambda: naming_missing_workers(group), self._bucket_bytes
            )
        return self._collectives

    @property
    def _buckets(self) -> BucketExchange:
        self._open()
        assert self._exchanged is not None
        return self._exchanged

    def _any(self, flags: Sequence[bool]) -> list[bool]:
        self._open()
        assert self._group is not None
        if self._group.size == 1 or not flags:
            return list(flags)
        with naming_missing_workers(self._group):
            return [total > 0 for total in self._group.sum_of([float(flag) for flag in flags])]

    # --- keys and values ------------------------------------------------------------------------------------------

    def init(self, key: Key | Sequence[Key], value: Values) -> None:
        """See :meth:`Store.init`. A collective."""
        collectives = self._open()
        values = arranged(key, value)
        self._kind.check(list(values))
        for one, given in values.items():
            if one in self._shapes or one in self._tables:
                raise ArgumentValueError(f"The key {one!r} was initialised before.", advice="Use set_value().", key=one)
            if len(given) != 1:
                raise ArgumentValueError(f"The key {one!r} is initialised with {len(given)} values instead of one.")
        firsts = {one: as_value(given[0]) for one, given in values.items()}
        self._require_same("initialises", {k: (tuple(v.shape), str(v.dtype)) for k, v in firsts.items()})
        dense: dict[Key, Tensor] = {}
        with naming_missing_workers(self._workers), torch.no_grad():
            for one, first in firsts.items():
                if isinstance(first, RowSparse):
                    self._tables[one] = self._new_table(one, first.checked())
                    self._load_waiting_states()
                else:
                    self._shapes[one] = (first.shape, first.dtype, first.device)
                    dense[one] = first.detach().clone(memory_format=torch.contiguous_format)
            running: list[tuple[Tensor | None, Pending, Bucket]] = []
            for bucket in plan_buckets([(k, *self._shapes[k]) for k in dense], bucket_bytes=self._bucket_bytes):
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
        self._stored.update(dense)

    def _new_table(self, key: Key, rows: RowSparse) -> Table:
        assert self._collectives is not None
        is_large = torch.Size(rows.shape).numel() >= big_array_bound()
        whole_rule = self._updater is not None and self._updater.optimizer.cut == "tensors"
        return Table(key, rows, self._collectives, is_cut=is_large and not whole_rule, updater=self._updater)

    def broadcast(
        self, key: Key | Sequence[Key], value: Values, out: Outputs, priority: int | Sequence[int] = 0
    ) -> None:
        """See :meth:`Store.broadcast`. A collective."""
        self.init(key, value)
        self.pull(key, out, priority)

    def push(self, key: Key | Sequence[Key], value: Values, priority: int | Sequence[int] = 0) -> None:
        """See :meth:`Store.push`. A collective: it returns when all workers have pushed."""
        values = self._known(key, value)
        self._exchange(values, {}, only_if_finite=False)

    def pull(
        self, key: Key | Sequence[Key], out: Outputs, priority: int | Sequence[int] = 0, ignore_sparse: bool = True
    ) -> None:
        """See :meth:`Store.pull`. A collective only for whole tables that are cut over the ranks."""
        for one, outputs in self._known(key, out).items():
            if one in self._tables:
                if not ignore_sparse:
                    with naming_missing_workers(self._workers):
                        whole = self._tables[one].whole()
                    self._write(one, whole, outputs)
                elif one not in self._passed_over:
                    self._passed_over.add(one)
                    _log.info("pull passes over the table %r, whose rows are pulled one by one", one)
                continue
            if outputs:
                self._write(one, self._value(one), outputs)

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
        return [self._rows(key, ids) for ids in row_ids]  # pyrefly: ignore

    def _rows(self, key: Key, row_ids: Tensor) -> RowSparse:
        with naming_missing_workers(self._workers):
            if key in self._tables:
                return self._tables[key].pull(row_ids)
            # A dense weight is whole everywhere, so its rows can be looked up like those of a small table.
            rows = checked_row_ids(key, row_ids, self._shape(key)[0])
            stored = self._value(key, rows)
            return RowSparse(rows, stored[rows.to(stored.device)].to(row_ids.device), tuple(stored.shape))

    def set_value(self, key: Key, value: Tensor) -> None:
        """See :meth:`Store.set_value`. A collective."""
        self._known(key, value)
        collectives = self._open()
        shape = self._shape(key)
        if tuple(value.shape) != tuple(shape):
            raise ArgumentValueError(
                f"The key {key!r} holds {tuple(shape)}, and a value of shape {tuple(value.shape)} was given.", key=key
            )
        with naming_missing_workers(self._workers), torch.no_grad():
            if key in self._tables:
                self._tables[key].replace(value)
                if self._updater is not None:
                    refresh_master_copy(self._updater, key, self._tables[key].stored)
                return
            received = value.detach().clone(memory_format=torch.contiguous_format)
            collectives.broadcast(received).wait()
            if key in self._stored:
                self._value(key).copy_(received)  # what was put off belongs to the old value
                if self._updater is not None:
                    refresh_master_copy(self._updater, key, self._updated_part(key))

    def _updated_part(self, key: Key) -> Tensor:
        place = self._buckets.place_of(key)
        return self._stored[key] if place is None or self._sharded is None else self._sharded.own_part(*place)

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
            if self._updater is not None:
                self._update(sums, set(dense), rows)
            self._deliver(sums, dense, rows, outputs, in_place=in_place)
            self._buckets.land(flights)
        return True

    def _agree_on_rows(
        self, given: Mapping[Key, Sequence[Value]]
    ) -> tuple[dict[Key, list[Tensor]], list[Key], Agreement]:
        """Which keys of this call travel in buckets, with their gradients, and which as rows; the same on all ranks."""
        undecided = [key for key in given if key not in self._tables and key not in self._row_keys]
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
        self._row_keys.update(keys)
        if self._sharded is None or self._updater is None:
            self._place([key for key in self._buckets.start_anew() if key not in self._row_keys])
            if self._watched:
                self._buckets.watch({})
            return
        # Weights and states of the others stay where they are. These are whole on every rank now.
        states = self._updater.state_dict()
        whole = self._sharded.whole_states({key: states["states"][key] for key in keys if key in states["states"]})
        self._updater.load_state_dict({**states, "states": {**states["states"], **whole}})
        self._buckets.leave_out(keys)
        self._stored.update({key: self._stored[key].clone() for key in keys})

    def _sum_rows(self, key: Key, pushed: Sequence[Value]) -> RowSparse:
        shape, dtype, device = self._home(key)
        rows = [one if isinstance(one, RowSparse) else _as_rows(one) for one in pushed]
        own = sum_values(rows, device) if rows else RowSparse.empty(tuple(shape), dtype=dtype, device=device)
        assert isinstance(own, RowSparse)
        if key in self._tables:
            return self._tables[key].sum(own)
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
        assert self._updater is not None
        if sums:
            assert self._sharded is not None
            self._sharded.update(sums, keys)
        names = list(rows)
        if names:
            weights = [self._tables[key].stored if key in self._tables else self._stored[key] for key in names]
            self._updater(names, [rows[key] for key in names], weights)

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
        if self._updater is None:  # the sums are what is stored and pulled
            totals = {slot.key: slot.of(flat) for bucket, flat in sums for slot in bucket.slots if slot.key in dense}
            for key, total in totals.items():
                if key in self._stored:
                    self._stored[key].copy_(total)
            for key, one in rows.items():
                stored = self._tables[key].stored if key in self._tables else self._stored.get(key)
                if stored is not None:
                    stored.index_copy_(0, one.indices, one.values.to(stored.dtype))
        for key, targets in outputs.items():
            if not targets:
                continue
            if in_place and key in rows:
                # Replicas receive the sum of their gradients in the form they gave it.
                write_value(rows[key], [target for target in targets if isinstance(target, Tensor)])
            elif key in totals:
                self._hand_over(key, totals[key], targets, in_place=in_place)
            elif key in self._tables:
                self._write(key, self._tables[key].whole(), targets)
            else:
                self._write(key, self._value(key), targets)

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

    def _write(self, key: Key, value: Tensor, outputs: Sequence[Tensor]) -> None:
        for output in outputs:
            if tuple(output.shape) != tuple(value.shape):
                raise ArgumentValueError(
                    f"The key {key!r} holds {tuple(value.shape)}, and an output has the shape {tuple(output.shape)}.",
                    key=key,
                )
        with torch.no_grad():
            write_value(value, outputs)

    # --- buckets --------------------------------------------------------------------------------------------------

    def _place(self, keys: Sequence[Key]) -> None:
        """Put keys that have no bucket yet into new ones, for good: slices of weights and states belong to them."""
        new = [key for key in keys if key not in self._buckets]
        if not new:
            return
        updater = self._updater
        if updater is not None and self._sharded is None:
            self._sharded = ShardedUpdate(updater, self._open())
            self._buckets.scattered = True
        buckets = self._buckets.place(
            [(key, self._shapes[key]) for key in new],
            owned=self._sharded is not None and not self._sharded.cuts_anywhere,
            # A master copy is worth nothing if the sum was rounded, or had no room, in 16 bits.
            widened=updater is not None and updater.optimizer.multi_precision,
        )
        if self._sharded is not None:
            for bucket in buckets:
                self._stored.update(self._sharded.take(bucket, self._stored))
        self._load_waiting_states()

    def watch(self, parameters: Mapping[Key, Sequence[Tensor]]) -> None:
        """See :meth:`Store.watch`. All workers watch the same keys."""
        self._known(list(parameters), [[]] * len(parameters))
        new = {key: list(replicas) for key, replicas in parameters.items() if key not in self._watched}
        if not new:
            return
        self._watched.update(new)
        if self._updater is None:
            for key in new:
                self._stored.pop(key, None)
        announced = {k for k, p in new.items() if getattr(p[0], "grad_stype", "default") == "row_sparse"}
        self._row_keys |= announced
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
        if self._tables or (self._exchanged is not None and self._exchanged.buckets):
            raise StateError(
                "An optimizer was given to a store that has exchanged values already.",
                advice="Call set_optimizer() before the first key is initialised.",
            )
        self._updater = Updater(optimizer)

    def save_optimizer_states(self) -> dict[str, Any]:
        """See :meth:`Store.save_optimizer_states`. A collective; every rank receives all states."""
        updater = self._updating()
        own = updater.state_dict()
        states = dict(own["states"])
        with naming_missing_workers(self._workers), torch.no_grad():
            if self._sharded is not None:
                cut = {key: state for key, state in states.items() if key in self._buckets}
                states.update(self._sharded.whole_states(cut))
            for key, table in self._tables.items():
                if key in states:
                    states[key] = table.whole_state(states[key])
        return {**own, "states": {**states, **self._waiting_states}}

    def load_optimizer_states(self, states: Mapping[str, Any]) -> None:
        """See :meth:`Store.load_optimizer_states`. Every rank gives the whole states."""
        self._updating().load_state_dict({**states, "states": {}})
        self._waiting_states = dict(states["states"])
        self._load_waiting_states()

    def _load_waiting_states(self) -> None:
        """Cut loaded states to this rank's parts, as soon as it is known what these are."""
        updater = self._updater
        known = {key for key in self._waiting_states if self._is_placed(key)}
        if updater is None or not known:
            return
        states = {key: self._waiting_states.pop(key) for key in known}
        if self._sharded is not None:
            for bucket in self._buckets.buckets:
                here = {k: s for k, s in states.items() if k in self._buckets}
                states.update(self._sharded.own_states(bucket, here))
        for key, table in self._tables.items():
            if key in states:
                states[key] = table.own_state(states[key])
        before = updater.state_dict()
        updater.load_state_dict({**before, "states": {**before["states"], **states}})

    def _is_placed(self, key: Key) -> bool:
        return key in self._tables or key in self._row_keys or key in self._buckets

    def _updating(self) -> Updater:
        if self._updater is None:
            raise StateError("This store has no optimizer, so it has no states.", advice="Call set_optimizer() first.")
        return self._updater

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
                self._compressor.state_dict(), self._workers, self._open(), lambda key: self._home(key)[2]
            )

    def load_residuals(self, residuals: Sequence[Mapping[str, Any]]) -> None:
        """See :meth:`Store.load_residuals`. With another number of workers, what is owed in sum stays the same; see
        :func:`~ostinato.kvstore.compression.residuals_for_rank`."""
        if not residuals:
            return
        if self._compressor is None:
            raise StateError(
                "There are residuals of gradient compression, and this store compresses nothing.",
                advice="Give compression_params as they were, or leave the residuals out.",
            )
        self._compressor.load_sum_of(residuals_for_rank(residuals, *self._seat()))

    # --- working with a trainer -----------------------------------------------------------------------------------

    def agree(self, flags: Sequence[bool]) -> list[bool]:
        """See :meth:`Store.agree`."""
        return self._any(flags)

    def barrier(self) -> None:
        """See :meth:`Store.barrier`."""
        self._open()
        self._workers.barrier()

    def close(self) -> None:
        """See :meth:`Store.close`. A group that the store opened itself is closed as well."""
        if self._exchanged is not None:
            self._exchanged.close()
        self._stored.clear()
        self._tables.clear()
        if self._group is not None and self._given_group is None:
            self._group.close()
        self._group = self._collectives = self._exchanged = None

    # --- inside ---------------------------------------------------------------------------------------------------

    @property
    def _workers(self) -> Group:
        assert self._group is not None, "a store is opened before it exchanges"
        return self._group

    def _home(self, key: Key) -> tuple[torch.Size, torch.dtype, torch.device]:
        if key in self._tables:
            table = self._tables[key]
            return table.shape, table.stored.dtype, table.stored.device
        return self._shapes[key]

    def _shape(self, key: Key) -> torch.Size:
        return self._home(key)[0]

    def _value(self, key: Key, rows: Tensor | None = None) -> Tensor:
        if key not in self._stored:
            raise StateError(
                f"The key {key!r} belongs to a parameter whose gradient this store adds up; it keeps no copy of it.",
                advice="Read the parameter, or its gradient.",
                key=key,
            )
        stored = self._stored[key]
        if self._updater is not None and key in self._row_keys:
            # Rows that had no gradient may have been spared updates (SGD's update="dense_lazy").
            self._updater.catch_up([key], [stored], None if rows is None else [rows.to(stored.device)])
        return stored

    def _known(self, key: Key | Sequence[Key], values: Any) -> dict[Key, list[Any]]:
        keys = key_list(key)
        self._kind.check(keys)
        for one in keys:
            if one not in self._shapes and one not in self._tables:
                raise ArgumentValueError(
                    f"The key {one!r} was never initialised.", advice="Call init() first, on all workers.", key=one
                )
        return arranged(key, values)

    def _check_pushed(self, key: Key, pushed: Sequence[Value]) -> None:
        shape = self._shape(key)
        for value in pushed:
            if tuple(value.shape) != tuple(shape):
                raise ArgumentValueError(
                    f"The key {key!r} holds {tuple(shape)}, and a value of shape {tuple(value.shape)} was pushed.",
                    key=key,
                )
            if self._compressor is not None:
                refuse_compression(key, value)
            if isinstance(value, RowSparse):
                value.checked()

    def _require_same(self, verb: str, facts: Mapping[Any, Any]) -> None:
        said = repr(list(facts.items()))
        if self._updater is not None:
            settings = self._updater.optimizer
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
