"""Rounds of a synchronous store: what all workers push is added up, and updated or stored.

Dense gradients travel in buckets, some of them while backward still runs; gradients that name their rows travel as
these rows. Which keys are which is found out in the rounds themselves, the same on all workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from ostinato.kvstore.buckets import Bucket
from ostinato.kvstore.buckets_exchange import Agreement, BucketExchange
from ostinato.kvstore.buckets_in_flight import Flight
from ostinato.kvstore.collective_keys import CollectiveKeys
from ostinato.kvstore.collective_states import CollectiveStates
from ostinato.kvstore.collective_workers import CollectiveWorkers
from ostinato.kvstore.compression import is_finite
from ostinato.kvstore.row_sparse_exchange import sum_of_rows
from ostinato.kvstore.sharded import ShardedUpdate
from ostinato.kvstore.store import Key, Value
from ostinato.kvstore.summing import sum_values
from ostinato.optim.row_sparse_gradient import RowSparse


@dataclass(frozen=True)
class Round:
    """What one round of pushes has come to. Tensors are views of buckets, which the next round but one writes to."""

    dense: dict[Key, Tensor]
    """The sums that came in buckets, where the replicas update."""
    rows: dict[Key, RowSparse]
    """The sums that came as rows; of a table that is cut, the rows that this worker has."""
    flights: Sequence[Flight]


class CollectiveRounds:
    """Adds up what the workers push under the keys of a store. All workers make the same calls in the same order.

    :param keys: shapes, values and whatever updates them; written to.
    :param states: are told of keys that have found their place.
    :param bucket_bytes: size of a bucket.
    """

    def __init__(
        self, keys: CollectiveKeys, states: CollectiveStates, workers: CollectiveWorkers, bucket_bytes: int
    ) -> None:
        self._keys = keys
        self._states = states
        self._workers = workers
        self._bucket_bytes = bucket_bytes
        self._watched: dict[Key, Sequence[Tensor]] = {}

    @property
    def buckets(self) -> BucketExchange:
        """The buckets and their exchange. The first call waits for the workers."""
        if self._keys.buckets is None:
            workers = self._workers
            self._keys.buckets = BucketExchange(
                workers.meet(), workers.any_of, workers.naming_missing, self._bucket_bytes
            )
        return self._keys.buckets

    # --- one round ------------------------------------------------------------------------------------------------

    def add_up(self, given: Mapping[Key, Sequence[Value]], *, only_if_finite: bool) -> Round | None:
        """Add up over all workers, and update what is stored, or store the sums where nothing updates.

        :param given: for each key, the values of this worker's replicas.
        :param only_if_finite: change nothing where a sum is not finite on any worker.
        :returns: to be given to :meth:`land`; None where nothing was changed.
        """
        dense, as_rows, agreement = self._agree_on_rows(given)
        flights = self.buckets.exchange(dense, agreement)
        sums = [(flight.bucket, flight.total()) for flight in flights]
        rows = {key: self._sum_rows(key, given[key]) for key in as_rows}
        if only_if_finite and not self._all_finite(flights, sums, rows.values()):
            self.buckets.land(flights)
            return None
        compressing = self.buckets.compressing
        for flight in flights:
            if flight.proposal is not None and compressing is not None:
                compressing.compressor.accept(flight.proposal, only=set(dense))
        totals: dict[Key, Tensor] = {}
        if self._keys.updater is not None:
            self._update(sums, set(dense), rows)
        else:  # the sums are what is stored and pulled
            totals = {slot.key: slot.of(flat) for bucket, flat in sums for slot in bucket.slots if slot.key in dense}
            self._keys.replace(totals, rows)
        return Round(totals, rows, flights)

    def lend(self, key: Key, total: Tensor, targets: Sequence[Tensor]) -> bool:
        """Let the gradient of a watched parameter be the sum itself, a view of a bucket, and not a copy of it.

        :returns: False where that cannot be, and the sum has to be copied.
        """
        parameters = self._watched.get(key, ())
        grad = parameters[0].grad if len(parameters) == 1 and len(targets) == 1 else None
        if (
            grad is None
            or grad.data_ptr() != targets[0].data_ptr()
            or grad.shape != total.shape
            or grad.stride() != total.stride()
            or grad.dtype != total.dtype
        ):
            return False
        grad.data = total
        targets[0].data = total
        return True

    def land(self, done: Round) -> None:
        """A round was used; backward may start the next one."""
        self.buckets.land(done.flights)

    def _agree_on_rows(
        self, given: Mapping[Key, Sequence[Value]]
    ) -> tuple[dict[Key, list[Tensor]], list[Key], Agreement]:
        """Which keys of this call travel in buckets, with their gradients, and which as rows; the same on all ranks."""
        undecided = [key for key in given if key not in self._keys.tables and key not in self._keys.row_keys]
        self._place(undecided)
        dense = {key: [one for one in given[key] if isinstance(one, Tensor)] for key in undecided}
        come_as_rows = [any(isinstance(value, RowSparse) for value in given[key]) for key in undecided]
        agreement, answers = self.buckets.compare(dense, come_as_rows)
        found = [key for key, is_sparse in zip(undecided, answers, strict=True) if is_sparse]
        if found:
            self.buckets.drop_all(dense, agreement)
            self._exchange_as_rows(found)
            dense = {key: pushed for key, pushed in dense.items() if key not in found}
            agreement, _ = self.buckets.compare(dense)
        return dense, [key for key in given if key not in dense], agreement

    def _exchange_as_rows(self, keys: Sequence[Key]) -> None:
        """Keys turned out to have row-sparse gradients: leave them out of the buckets from now on."""
        there = self._keys
        there.row_keys.update(keys)
        if there.sharded is None or there.updater is None:
            self._place([key for key in self.buckets.start_anew() if key not in there.row_keys])
            if self._watched:
                self.buckets.watch({})
            return
        # Weights and states of the others stay where they are. These are whole on every rank now.
        states = there.updater.state_dict()
        whole = there.sharded.whole_states({key: states["states"][key] for key in keys if key in states["states"]})
        there.updater.load_state_dict({**states, "states": {**states["states"], **whole}})
        self.buckets.leave_out(keys)
        there.stored.update({key: there.stored[key].clone() for key in keys})

    def _sum_rows(self, key: Key, pushed: Sequence[Value]) -> RowSparse:
        shape, dtype, device = self._keys.home(key)
        rows = [one if isinstance(one, RowSparse) else _as_rows(one) for one in pushed]
        own = sum_values(rows, device) if rows else RowSparse.empty(tuple(shape), dtype=dtype, device=device)
        assert isinstance(own, RowSparse)
        if key in self._keys.tables:
            return self._keys.tables[key].sum(own)
        return sum_of_rows(own, self._workers.meet())

    def _all_finite(
        self, flights: Sequence[Flight], sums: Sequence[tuple[Bucket, Tensor]], rows: Iterable[RowSparse]
    ) -> bool:
        """Whether everything that would be applied is finite, with the same answer on every rank."""
        if self.buckets.compressing is not None:
            mine = all(flight.is_finite for flight in flights)
        else:
            mine = all(bool(is_finite(own[: bucket.size])) for bucket, own in sums)
        mine = mine and all(bool(is_finite(one.values)) for one in rows)
        (wrong,) = self._workers.any_of([not mine])
        return not wrong

    def _update(self, sums: Sequence[tuple[Bucket, Tensor]], keys: set[Key], rows: Mapping[Key, RowSparse]) -> None:
        there = self._keys
        assert there.updater is not None
        if sums:
            assert there.sharded is not None
            there.sharded.update(sums, keys)
        if rows:
            there.updater(list(rows), list(rows.values()), [there.with_rows(key) for key in rows])

    # --- buckets --------------------------------------------------------------------------------------------------

    def watch(self, parameters: Mapping[Key, Sequence[Tensor]]) -> None:
        """Start exchanges from backward, for keys that are not watched yet. All workers watch the same ones."""
        there = self._keys
        new = {key: list(replicas) for key, replicas in parameters.items() if key not in self._watched}
        if not new:
            return
        self._watched.update(new)
        if there.updater is None:
            for key in new:
                there.stored.pop(key, None)
        announced = {k for k, p in new.items() if getattr(p[0], "grad_stype", "default") == "row_sparse"}
        there.row_keys |= announced
        dense = {key: replicas for key, replicas in new.items() if key not in announced}
        self._place(list(dense))
        if self._workers.meet().size > 1:
            self.buckets.watch(dense)

    def holding(self) -> AbstractContextManager[None]:
        """Start nothing from backward inside."""
        return nullcontext() if self._keys.buckets is None else self._keys.buckets.holding()

    def _place(self, keys: Sequence[Key]) -> None:
        """Put keys that have no bucket yet into new ones, for good: slices of weights and states belong to them."""
        there, exchange = self._keys, self.buckets
        new = [key for key in keys if key not in exchange]
        if not new:
            return
        if there.updater is not None and there.sharded is None:
            there.sharded = ShardedUpdate(there.updater, self._workers.meet())
            exchange.scattered = True
        buckets = exchange.place(
            [(key, there.shapes[key]) for key in new],
            owned=there.sharded is not None and not there.sharded.cuts_anywhere,
            # A master copy is worth nothing if the sum was rounded, or had no room, in 16 bits.
            widened=there.updater is not None and there.updater.optimizer.multi_precision,
        )
        if there.sharded is not None:
            for bucket in buckets:
                there.stored.update(there.sharded.take(bucket, there.stored))
        self._states.take_placed()

    def close(self) -> None:
        """Take the hooks off, and wait for what is on its way."""
        if self._keys.buckets is not None:
            self._keys.buckets.close()


def _as_rows(dense: Tensor) -> RowSparse:
    """The rows of a dense gradient that are not zero."""
    flat = dense.detach().reshape(len(dense), -1)
    rows = torch.nonzero((flat != 0).any(dim=1)).reshape(-1)
    return RowSparse(rows, dense.detach()[rows], tuple(dense.shape))
