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
from ostinato.kvstore.store import Key
from ostinato.optim.rules import Updater


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
            whole = slot.of(flat)
            return whole if bucket.owner == self._collectives.rank else _none_of(whole)
        first, last = self._range(bucket, slot)
        return flat[first:last]

    def _gradient_part(self, bucket: Bucket, slot: Slot, own: Tensor) -> Tensor:
        if bucket.owner is not None:
            return slot.of(own) if len(own) else _none_of(own.new_empty(slot.shape))
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
            trees = {slot.key: dict(_leaves(states[slot.key])) for slot in slots}
            found: dict[Key, dict[tuple[Any, ...], Any]] = {key: {} for key in trees}
            for path, dtype in sorted({(p, str(v.dtype)) for t in trees.values() for p, v in t.items()}, key=repr):
                holders = [s for s in slots if path in trees[s.key] and str(trees[s.key][path].dtype) == dtype]
                for slot, value in self._gathered(bucket, holders, [trees[s.key][path] for s in holders]):
                    found[slot.key][path] = value
            for slot in slots:
                whole[slot.key] = _with_leaves(states[slot.key], found[slot.key])
        return whole

    def _gathered(
        self, bucket: Bucket, slots: Sequence[Slot], parts: Sequence[Tensor]
    ) -> Iterator[tuple[Slot, Tensor]]:
        if bucket.owner is not None:
            for slot, part in zip(slots, parts, strict=True):
                if part.ndim == 0:
                    value = part.detach().clone()
                elif bucket.owner == self._collectives.rank:
                    value = part.detach().clone().contiguous()
                else:
                    rows = slot.shape[0] if slot.shape else 1
                    value = part.new_empty((rows, *part.shape[1:]))
                    value = value.view(slot.shape) if value.numel() == slot.size else value
                self._collectives.broadcast(value, bucket.owner).wait()
                yield slot, value
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

    def own_states(self, bucket: Bucket, states: Mapping[Key, Any]) -> dict[Key, Any]:
        """Cut whole states of a bucket's keys to this rank's part."""
        own: dict[Key, Any] = {}
        for slot in bucket.slots:
            if slot.key not in states:
                continue
            cut = {path: self._own_leaf(bucket, slot, leaf) for path, leaf in _leaves(states[slot.key])}
            own[slot.key] = _with_leaves(states[slot.key], cut)
        return own

    def _own_leaf(self, bucket: Bucket, slot: Slot, leaf: Tensor) -> Tensor:
        if bucket.owner is not None:
            return leaf if bucket.owner == self._collectives.rank or leaf.ndim == 0 else _none_of(leaf)
        if leaf.numel() != slot.size or (leaf.ndim == 0 and slot.shape):
            return leaf
        first, last = self._range(bucket, slot)
        return leaf.reshape(-1)[first - slot.start : last - slot.start]


def _none_of(whole: Tensor) -> Tensor:
    """Nothing of a tensor, with as many dimensions as it has."""
    return whole.reshape(1)[:0] if whole.ndim == 0 else whole[:0]


def _leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Tensor]]:
    if isinstance(tree, Tensor):
        yield path, tree
    elif isinstance(tree, Mapping):
        for name, part in tree.items():
            yield from _leaves(part, (*path, name))
    elif isinstance(tree, (list, tuple)):
        for number, part in enumerate(tree):
            yield from _leaves(part, (*path, number))


def _with_leaves(tree: Any, leaves: Mapping[tuple[Any, ...], Tensor], path: tuple[Any, ...] = ()) -> Any:
    """The same tree with its tensors replaced."""
    if isinstance(tree, Tensor):
        return leaves[path]
    if isinstance(tree, Mapping):
        return {name: _with_leaves(part, leaves, (*path, name)) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_with_leaves(part, leaves, (*path, number)) for number, part in enumerate(tree))
    return tree
