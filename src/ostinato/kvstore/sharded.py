"""The update on the store in synchronous training: every rank updates its own part of every bucket.

Ranks add up gradients so that each receives only its part of the sum, update that part of the weights with the
optimizer state that belongs to it, and gather the parts. That moves as many bytes as an all-reduce, and each rank
keeps and computes one part of the optimizer state instead of all of it.

Where a bucket is cut depends on the optimizer. Rules that look at single elements are cut anywhere, into equal slices.
Rules that look at rows or at whole tensors (norms, trust ratios) get whole buckets: each bucket has an owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.kvstore.buckets import Bucket, Slot
from ostinato.kvstore.collective_calls import Collectives
from ostinato.kvstore.saved_leaves import (
    Leaf,
    changed,
    element_range,
    is_flat,
    leaves,
    read_whole,
    size_of,
    with_leaves,
)
from ostinato.kvstore.store import Key
from ostinato.optim.rules import Updater
from ostinato.runs.row_cut import RowCut

SLICES_FILE = "slices"
"""What the files begin with to which ranks save their parts of optimizer states."""


class ShardedUpdate:
    """Weights in buckets, of which this rank updates its part.

    :param updater: applies the rule; its states for these keys have the size of this rank's parts.
    """

    def __init__(self, updater: Updater, collectives: Collectives) -> None:
        self._updater = updater
        self._collectives = collectives
        self._weights: dict[Bucket, Tensor] = {}

    @property
    def cuts_anywhere(self) -> bool:
        """True when buckets are cut into equal slices, False when each needs an owner."""
        return self._updater.optimizer.cut == "elements"

    def take(self, bucket: Bucket, stored: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
        """Bring the weights of a new bucket into one stretch of memory; give back the views that replace them."""
        flat = torch.zeros(bucket.whole, dtype=bucket.dtype, device=bucket.device)
        for slot in bucket.slots:
            slot.of(flat).copy_(stored[slot.key])
        self._weights[bucket] = flat
        return {slot.key: slot.of(flat) for slot in bucket.slots}

    def update(self, sums: Sequence[tuple[Bucket, Tensor]], keys: set[Key]) -> None:
        """Update these keys on all ranks. A collective.

        Every rank counts every key, also those of which it has no part: rates and schedules go on alike everywhere.

        :param sums: buckets in order, each with this rank's part of the summed gradient.
        :param keys: the keys to update, all in these buckets.
        """
        parts: dict[Key, tuple[Tensor, Tensor]] = {}
        for bucket, own in sums:
            for slot in bucket.slots:
                if slot.key in keys:
                    parts[slot.key] = self._gradient_part(bucket, slot, own), self.own_part(bucket, slot)
        # In the order of the keys, as everywhere, and not of the buckets: where keys have seen different numbers of
        # updates, the rate that a schedule gives depends on which of them is counted first.
        names = sorted(parts)  # pyrefly: ignore  # keys are all numbers or all text
        self._updater(names, [parts[key][0] for key in names], [parts[key][1] for key in names])
        running = []
        for bucket, _ in sums:
            flat = self._weights[bucket]
            if bucket.owner is not None:
                running.append(self._collectives.broadcast(flat, bucket.owner))
            else:
                # A copy of the own slice, because not every backend may read and write the same memory.
                own = flat.chunk(self._collectives.size)[self._collectives.rank].clone()
                running.append(self._collectives.all_gather(flat, own))
        for one in running:
            one.wait()

    def own_part(self, bucket: Bucket, slot: Slot) -> Tensor:
        """This rank's part of a weight, a view: flat where it is cut anywhere; else all or none of it."""
        flat = self._weights[bucket]
        if bucket.owner is not None:
            weight = _rows_of(slot, flat)
            return weight if bucket.owner == self._collectives.rank else weight[:0]
        first, last = self._range(bucket, slot)
        return flat[first:last]

    def _gradient_part(self, bucket: Bucket, slot: Slot, own: Tensor) -> Tensor:
        if bucket.owner is not None:
            return _rows_of(slot, own) if len(own) else own.new_empty((0, *slot.shape[1:]))
        first, last = self._range(bucket, slot)
        start = self._slice_start(bucket)
        return own[first - start : last - start]

    def _slice_start(self, bucket: Bucket) -> int:
        return bucket.whole // self._collectives.size * self._collectives.rank

    def _range(self, bucket: Bucket, slot: Slot) -> tuple[int, int]:
        """First and last element, in the bucket, of this rank's part of a key; equal where it has none."""
        start = self._slice_start(bucket)
        end = start + bucket.whole // self._collectives.size
        first = min(max(slot.start, start), end)
        return first, max(first, min(slot.start + slot.size, end))

    # --- states of any number of ranks ----------------------------------------------------------------------------

    def whole_states(self, states: Mapping[Key, Any]) -> dict[Key, Any]:
        """Put the ranks' states of these buckets together, on every rank. A collective.

        :param states: trees of tensors and plain values by key, as this rank has them.
        """
        whole: dict[Key, Any] = {}
        for bucket in self._weights:
            slots = [slot for slot in bucket.slots if slot.key in states]
            trees = {slot.key: dict(leaves(states[slot.key])) for slot in slots}
            found: dict[Key, dict[tuple[Any, ...], Any]] = {key: {} for key in trees}
            for path, dtype in sorted({(p, str(v.dtype)) for t in trees.values() for p, v in t.items()}, key=repr):
                holders = [s for s in slots if path in trees[s.key] and str(trees[s.key][path].dtype) == dtype]
                for slot, value in self._gathered(bucket, holders, [trees[s.key][path] for s in holders]):
                    found[slot.key][path] = value
            for slot in slots:
                whole[slot.key] = with_leaves(states[slot.key], found[slot.key])
        return whole

    def _gathered(
        self, bucket: Bucket, slots: Sequence[Slot], parts: Sequence[Tensor]
    ) -> Iterator[tuple[Slot, Tensor]]:
        if bucket.owner is not None:
            for slot, part in zip(slots, parts, strict=True):
                if part.ndim == 0:
                    yield slot, part.detach().clone()  # a number for the whole weight, the same on all ranks
                    continue
                if bucket.owner == self._collectives.rank:
                    value = part.detach().clone().contiguous()
                else:
                    value = part.new_empty((_rows_in(slot, part), *part.shape[1:]))
                self._collectives.broadcast(value, bucket.owner).wait()
                yield slot, value if slot.shape else value.reshape(())
            return
        cut = [(s, p) for s, p in zip(slots, parts, strict=True) if p.ndim == 1]
        for slot, part in zip(slots, parts, strict=True):
            if part.ndim != 1:
                yield slot, part.detach().clone()  # a number for the whole weight, the same on all ranks
        if not cut:
            return
        dtype, start = cut[0][1].dtype, self._slice_start(bucket)
        own = torch.zeros(bucket.whole // self._collectives.size, dtype=dtype, device=cut[0][1].device)
        for slot, part in cut:
            first, last = self._range(bucket, slot)
            own[first - start : last - start] = part
        flat = own.new_empty(bucket.whole)
        self._collectives.all_gather(flat, own).wait()
        for slot, _ in cut:
            yield slot, slot.of(flat).clone()

    def states_in_parts(self, states: Mapping[Key, Any]) -> dict[Key, Any]:
        """The ranks' states of these buckets with this rank's part of each weight to be saved as such: no collective.

        :param states: as for :meth:`whole_states`.
        """
        parts: dict[Key, Any] = {}
        for bucket in self._weights:
            for slot in bucket.slots:
                if slot.key in states:
                    parts[slot.key] = changed(states[slot.key], lambda leaf, b=bucket, s=slot: self._part(b, s, leaf))
        return parts

    def _part(self, bucket: Bucket, slot: Slot, leaf: Tensor) -> Tensor | RowCut:
        if leaf.ndim == 0:
            return leaf
        if bucket.owner is not None:
            own = leaf if bucket.owner == self._collectives.rank else leaf[:0]
            return RowCut(own, 0, _rows_in(slot, leaf), file=SLICES_FILE)
        first, _ = self._range(bucket, slot)
        return RowCut(leaf, min(max(first - slot.start, 0), slot.size), slot.size, file=SLICES_FILE)

    def own_states(self, bucket: Bucket, states: Mapping[Key, Any]) -> dict[Key, Any]:
        """Cut saved states of a bucket's keys, whole ones or those of any number of ranks, to this rank's part."""
        return {
            slot.key: changed(states[slot.key], lambda leaf, slot=slot: self._own_leaf(bucket, slot, leaf))
            for slot in bucket.slots
            if slot.key in states
        }

    def _own_leaf(self, bucket: Bucket, slot: Slot, leaf: Leaf) -> Tensor:
        if bucket.owner is not None:
            is_number = len(leaf.shape) == 0
            if is_number and slot.shape:
                return read_whole(leaf)
            if bucket.owner == self._collectives.rank:
                return read_whole(leaf, slot.shape) if slot.shape else read_whole(leaf).reshape(1)
            row = slot.shape[1:] if is_number or is_flat(leaf, slot.shape) else leaf.shape[1:]
            return torch.empty((0, *row), dtype=leaf.dtype)
        if size_of(leaf) != slot.size or (len(leaf.shape) == 0 and slot.shape):
            return read_whole(leaf)
        first, last = self._range(bucket, slot)
        return element_range(leaf, first - slot.start, last - slot.start)


def _rows_of(slot: Slot, flat: Tensor) -> Tensor:
    """A whole weight in its own shape; a single number as a row, for its owner has to differ from the others."""
    return slot.of(flat) if slot.shape else flat[slot.start : slot.start + 1]


def _rows_in(slot: Slot, part: Tensor) -> int:
    """Rows of the whole of which a rank has a part: all of them, or none where another one owns the weight."""
    return len(part) or (slot.shape[0] if slot.shape else 1)
