"""One bucket on its way from the ranks' gradients to their sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ostinato.kvstore.buckets import Bucket
from ostinato.kvstore.collective_calls import DONE, Collectives, Pending
from ostinato.kvstore.compression import Compressor, is_finite
from ostinato.kvstore.compression.exchange import PendingSum, Route, begin_sum
from ostinato.kvstore.compression.residuals import Proposal
from ostinato.kvstore.store import Key

Gradients = Mapping[Key, Sequence[Tensor]]
"""For each key one dense gradient for each replica of this process."""


class Compressing:
    """How a store compresses: the compressor with this worker's residuals, and the way the words travel."""

    def __init__(self, compressor: Compressor, route: Route) -> None:
        self.compressor = compressor
        self.route: Route = route


class Flight:
    """The exchange of one bucket. Starting it is a collective; so is :meth:`total`, in the same order.

    What was put in is remembered by identity and version, so that :meth:`carries` can tell whether a gradient has
    changed since. Nothing but the bucket's own memory is written to.

    :param gradients: of the bucket's keys; a key that is left out counts as zeros.
    :param scattered: give every rank its slice of the sum (or its owner the whole bucket) instead of all of it.
    """

    def __init__(
        self,
        bucket: Bucket,
        gradients: Gradients,
        collectives: Collectives,
        *,
        scattered: bool = False,
        compressing: Compressing | None = None,
    ) -> None:
        self.bucket = bucket
        self.is_finite = True
        """Whether this rank's gradients were finite; looked at only where they are compressed, which hides it."""
        self.proposal: Proposal | None = None
        self._collectives = collectives
        self._scattered = scattered
        self._seen = {
            slot.key: [(gradient, gradient._version) for gradient in gradients[slot.key]]
            for slot in bucket.slots
            if slot.key in gradients
        }
        self._buffer = bucket.free_buffer([one for slot in bucket.slots for one in gradients.get(slot.key, ())])
        self._fill(gradients)
        self._sum: PendingSum | None = None
        self._running: Pending = DONE
        self._own: Tensor | None = None
        if compressing is not None:
            self._begin_compressed(compressing)
        elif not scattered:
            self._running = collectives.all_reduce(self._buffer)
        elif bucket.owner is not None:
            self._running = collectives.reduce(self._buffer, bucket.owner)
        else:
            self._own = self._buffer.new_empty(bucket.whole // collectives.size)
            self._running = collectives.reduce_scatter(self._own, self._buffer)

    @torch.no_grad()
    def _fill(self, gradients: Gradients) -> None:
        here = [slot for slot in self.bucket.slots if slot.key in gradients]
        places = [slot.of(self._buffer) for slot in here]
        self._buffer[self.bucket.size :].zero_()
        for slot in self.bucket.slots:
            if slot.key not in gradients:
                slot.of(self._buffer).zero_()
        if not here:
            return
        torch._foreach_copy_(places, [gradients[slot.key][0].detach() for slot in here])
        for number in range(1, max(len(gradients[slot.key]) for slot in here)):
            for slot, place in zip(here, places, strict=True):
                if number < len(gradients[slot.key]):
                    place += gradients[slot.key][number].detach().to(place.device)

    def _begin_compressed(self, compressing: Compressing) -> None:
        bucket, compressor = self.bucket, compressing.compressor
        own = self._buffer[: bucket.size]
        self.is_finite = bool(is_finite(own))
        self.proposal = compressor.propose(bucket.layout, own)
        self._sum = begin_sum(
            compressor.scheme, self.proposal.packed, bucket.size, self._collectives, compressing.route
        )

    def carries(self, gradients: Gradients) -> bool:
        """True when the keys of this bucket that are given here were put in as they are now."""
        for slot in self.bucket.slots:
            if slot.key not in gradients:
                continue
            seen, now = self._seen.get(slot.key), gradients[slot.key]
            if seen is None or len(seen) != len(now):
                return False
            if any(one is not then or one._version != version for one, (then, version) in zip(now, seen, strict=True)):
                return False
        return True

    def total(self) -> Tensor:
        """Wait, and give the sum: (bucket.whole,), or this rank's part of it where it is scattered.

        The part is the rank's equal slice, or the whole bucket for the rank that owns it and nothing for the others.
        The memory belongs to the bucket and is used again by the exchange after the next.
        """
        self._running.wait()
        if self._sum is not None:
            self._sum.finish(self._buffer[: self.bucket.size])
        if not self._scattered:
            return self._buffer
        if self.bucket.owner is not None:
            return self._buffer if self.bucket.owner == self._collectives.rank else self._buffer[:0]
        if self._own is not None:
            return self._own
        return self._buffer.chunk(self._collectives.size)[self._collectives.rank]

    def drop(self) -> None:
        """Wait for what is running, and forget it."""
        self._running.wait()
        if self._sum is not None:
            self._sum.finish(self._buffer[: self.bucket.size])
