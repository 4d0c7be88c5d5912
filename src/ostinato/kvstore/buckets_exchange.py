"""All buckets of a store: which exist, which are on their way, and which of them the ranks have to send again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from ostinato.kvstore.buckets import Bucket, Slot, give_owners, plan_buckets
from ostinato.kvstore.buckets_in_backward import BackwardWatch
from ostinato.kvstore.buckets_in_flight import Compressing, Flight, Gradients
from ostinato.kvstore.collective_calls import Collectives
from ostinato.kvstore.store import Key

Home = tuple[torch.Size, torch.dtype, torch.device]
"""Shape, dtype and device of a key."""


class BucketExchange:
    """Exchanges gradients bucket by bucket, some of them while backward still runs.

    Ranks may have started different buckets when the sums are asked for: one rank's backward reached parameters that
    another's did not. They tell each other, in one small message, and then start and repeat exchanges in bucket order,
    so that every rank makes the same collectives in the same order.

    :param any_of: gives, for a list of flags, which of them any rank has set; the same answer on all ranks.
    :param guarded: a context for collectives that backward starts; it says who is missing when they fail.
    :param bucket_bytes: size of a bucket.
    """

    def __init__(
        self,
        collectives: Collectives,
        any_of: Callable[[Sequence[bool]], list[bool]],
        guarded: Callable[[], AbstractContextManager[None]],
        bucket_bytes: int,
    ) -> None:
        self.compressing: Compressing | None = None
        """How gradients are compressed; ``None``: they are not."""
        self.scattered = False
        """Every rank receives its part of the sum, see :class:`Flight`."""
        self.buckets: list[Bucket] = []
        self._collectives = collectives
        self._any_of = any_of
        self._guarded = guarded
        self._bucket_bytes = bucket_bytes
        self._bucket_of: dict[Key, Bucket] = {}
        self._watched: dict[Key, list[Tensor]] = {}
        self._watch: BackwardWatch | None = None
        self._flights: dict[Bucket, Flight] = {}

    # --- which buckets there are ------------------------------------------------------------------------------------

    def place(self, keys: Sequence[tuple[Key, Home]], *, owned: bool = False, widened: bool = False) -> list[Bucket]:
        """Put keys that have no bucket into new ones, and give those.

        :param owned: every bucket gets an owner, for rules that must not see a part of a parameter.
        :param widened: see :func:`plan_buckets`.
        """
        new = plan_buckets(
            [(key, *home) for key, home in keys if key not in self._bucket_of],
            slices=self._collectives.size,
            widened=widened,
            bucket_bytes=self._bucket_bytes,
        )
        if owned:
            give_owners(new, self._collectives.size)
        for bucket in new:
            bucket.number = len(self.buckets)
            self.buckets.append(bucket)
            self._bucket_of.update({slot.key: bucket for slot in bucket.slots})
        return new

    def __contains__(self, key: Key) -> bool:
        return key in self._bucket_of

    def place_of(self, key: Key) -> tuple[Bucket, Slot] | None:
        """Bucket and slot of a key, if it has one."""
        bucket = self._bucket_of.get(key)
        return None if bucket is None else (bucket, next(slot for slot in bucket.slots if slot.key == key))

    def leave_out(self, keys: Sequence[Key]) -> None:
        """Exchange these keys no more; their places stay empty. Nothing is on its way then."""
        for key in keys:
            self._bucket_of.pop(key, None)

    def start_anew(self) -> list[Key]:
        """Forget the buckets, and give the keys that are to be placed again. Nothing is on its way then."""
        keys = list(self._bucket_of)
        self.buckets.clear()
        self._bucket_of.clear()
        return keys

    # --- backward ---------------------------------------------------------------------------------------------------

    def watch(self, parameters: Mapping[Key, Sequence[Tensor]]) -> None:
        """Start exchanges from backward, for buckets all of whose keys are watched; more parameters may follow."""
        self._watched.update({key: list(replicas) for key, replicas in parameters.items()})
        if self._watch is not None:
            self._watch.close()
        here = {key: replicas for key, replicas in self._watched.items() if key in self._bucket_of}
        buckets = [bucket for bucket in self.buckets if all(slot.key in here for slot in bucket.slots)]
        self._watch = BackwardWatch(here, buckets, self._launch_early)

    def holding(self) -> AbstractContextManager[None]:
        """Start nothing from backward inside."""
        return nullcontext() if self._watch is None else self._watch.holding()

    def _launch_early(self, bucket: Bucket, gradients: Gradients) -> None:
        if bucket not in self._flights:
            with self._guarded(), torch.no_grad():
                self._launch(bucket, gradients)

    # --- exchanging -------------------------------------------------------------------------------------------------

    def compare(self, gradients: Gradients, questions: Sequence[bool] = ()) -> tuple[Agreement, list[bool]]:
        """Find out what the ranks have started and what has changed since. A collective.

        :param gradients: what is to be exchanged, as it is now.
        :param questions: more flags for the same message.
        :returns: what :meth:`exchange` needs, and for each question whether any rank has said True.
        """
        launched = [bucket in self._flights for bucket in self.buckets]
        changed = [
            bucket in self._flights and not self._flights[bucket].carries(_of(bucket, gradients))
            for bucket in self.buckets
        ]
        answers = self._any_of([*questions, *launched, *changed])
        more = answers[len(questions) :]
        return (more[: len(launched)], more[len(launched) :]), answers[: len(questions)]

    def exchange(self, gradients: Gradients, agreement: Agreement) -> list[Flight]:
        """Have the buckets of these keys on their way with what they hold now, and give them in bucket order."""
        needed = {self._bucket_of[key] for key in gradients}
        launched, changed = agreement
        for bucket, by_others in zip(self.buckets, launched, strict=True):
            if bucket not in self._flights and by_others:
                self._launch(bucket, _of(bucket, gradients))
        for bucket in self.buckets:
            if bucket not in self._flights and bucket in needed:
                self._launch(bucket, _of(bucket, gradients))
        for bucket, is_old in zip(self.buckets, changed, strict=True):
            if bucket in self._flights and (bucket not in needed or is_old):
                self._flights.pop(bucket).drop()
                if bucket in needed:
                    self._launch(bucket, _of(bucket, gradients))
        return [self._flights[bucket] for bucket in self.buckets if bucket in needed]

    def drop_all(self, gradients: Gradients, agreement: Agreement) -> None:
        """Let what any rank has started come to nothing, on all ranks."""
        for bucket, by_others in zip(self.buckets, agreement[0], strict=True):
            if bucket not in self._flights and by_others:
                self._launch(bucket, _of(bucket, gradients))
        for bucket in self.buckets:
            if bucket in self._flights:
                self._flights.pop(bucket).drop()

    def land(self, flights: Sequence[Flight]) -> None:
        """These have arrived and were used; backward may start the next ones."""
        for flight in flights:
            self._flights.pop(flight.bucket, None)
        if self._watch is not None:
            self._watch.start_over()

    def _launch(self, bucket: Bucket, gradients: Gradients) -> None:
        self._flights[bucket] = Flight(
            bucket, gradients, self._collectives, scattered=self.scattered, compressing=self.compressing
        )

    def close(self) -> None:
        """Take the hooks off, and wait for what is on its way."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        for flight in self._flights.values():
            with contextlib.suppress(RuntimeError):  # the others may be gone already
                flight.drop()
        self._flights.clear()
        for bucket in self.buckets:
            bucket.drop_buffers()


Agreement = tuple[list[bool], list[bool]]
"""For each bucket: some rank has started it; on some rank, what it carries is old."""


def _of(bucket: Bucket, gradients: Gradients) -> dict[Key, Sequence[Tensor]]:
    return {slot.key: gradients[slot.key] for slot in bucket.slots if gradients.get(slot.key)}
