"""Buckets: gradients that lie behind one another in memory and are exchanged together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ostinato.kvstore.store import Key
from ostinato.optim.rules.blocks import computing_dtype

BUCKET_BYTES = 25 * 2**20
"""Large enough that an exchange is not mostly waiting, small enough that the first one starts early in backward."""


@dataclass(frozen=True)
class Slot:
    """The place of one key in a bucket."""

    key: Key
    shape: torch.Size
    start: int
    """Its first element."""

    @property
    def size(self) -> int:
        """Number of its elements."""
        return self.shape.numel()

    def of(self, flat: Tensor) -> Tensor:
        """Its part of a bucket's memory, in its own shape; a view."""
        return flat[self.start : self.start + self.size].view(self.shape)


@dataclass(eq=False)
class Bucket:
    """Keys of one dtype and one device that are exchanged together. All ranks have the same buckets."""

    number: int
    dtype: torch.dtype
    device: torch.device
    exchanged_as: torch.dtype
    """The dtype in which gradients are added up."""
    slots: list[Slot] = field(default_factory=list)
    size: int = 0
    """Elements of all slots."""
    whole: int = 0
    """``size``, rounded up so that it can be cut into equal slices."""
    owner: int | None = None
    """The rank that updates the whole bucket, where the optimizer must not see a part of a parameter."""
    _buffers: list[Tensor] = field(default_factory=list)

    @property
    def layout(self) -> list[tuple[Key, int]]:
        """Keys and sizes in the order of memory."""
        return [(slot.key, slot.size) for slot in self.slots]

    def free_buffer(self, in_use: Sequence[Tensor]) -> Tensor:
        """Memory of ``whole`` elements that none of these tensors lies in. There are two that take turns: gradients
        that were delivered as views of one are the input of the other. Its contents are whatever was there."""
        taken = {tensor.untyped_storage().data_ptr() for tensor in in_use}
        for buffer in self._buffers:
            if buffer.untyped_storage().data_ptr() not in taken:
                return buffer
        self._buffers.append(torch.zeros(self.whole, dtype=self.exchanged_as, device=self.device))
        return self._buffers[-1]

    def drop_buffers(self) -> None:
        """Forget the buffers; views of them stay valid."""
        self._buffers.clear()


def plan_buckets(
    keys: Sequence[tuple[Key, torch.Size, torch.dtype, torch.device]],
    *,
    slices: int = 1,
    widened: bool = False,
    bucket_bytes: int = BUCKET_BYTES,
) -> list[Bucket]:
    """Put keys into buckets, the last key first: backward reaches the last parameters first.

    A pure function of its arguments, so ranks that name the same keys in the same order have the same buckets.

    :param keys: key, shape, dtype and device of each.
    :param slices: a bucket's memory can be cut into this many equal parts.
    :param widened: add up gradients of 16 bits in float32.
    :param bucket_bytes: a bucket is closed when it has at least so many.
    """
    buckets: list[Bucket] = []
    open_buckets: dict[tuple[torch.dtype, torch.device], Bucket] = {}
    for key, shape, dtype, device in reversed(keys):
        kind = (dtype, device)
        bucket = open_buckets.get(kind)
        if bucket is None:
            exchanged_as = computing_dtype(dtype) if widened else dtype
            bucket = open_buckets[kind] = Bucket(len(buckets), dtype, device, exchanged_as)
            buckets.append(bucket)
        bucket.slots.append(Slot(key, shape, bucket.size))
        bucket.size += shape.numel()
        if bucket.size * dtype.itemsize >= bucket_bytes:
            del open_buckets[kind]
    for bucket in buckets:
        bucket.whole = max(1, -(-bucket.size // slices)) * slices
    return buckets


def give_owners(buckets: Sequence[Bucket], size: int) -> None:
    """Share whole buckets out over ranks: the largest first, each to the rank that has least so far."""
    loads = [0] * size
    for bucket in sorted(buckets, key=lambda one: (-one.size, one.number)):
        bucket.owner = loads.index(min(loads))
        loads[bucket.owner] += bucket.size * bucket.dtype.itemsize
