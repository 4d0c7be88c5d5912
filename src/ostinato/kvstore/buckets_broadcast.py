"""Values that rank 0 gives to all ranks, many of them in one message."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ostinato.kvstore.buckets import Bucket, plan_buckets
from ostinato.kvstore.collective_calls import Collectives, Pending
from ostinato.kvstore.store import Key


def broadcast_together(values: Mapping[Key, Tensor], collectives: Collectives, bucket_bytes: int) -> None:
    """Make dense values on every rank what they are on rank 0, in place. A collective.

    :param values: contiguous tensors; of the same keys, shapes and dtypes on every rank.
    :param bucket_bytes: size of a message.
    """
    homes = [(key, value.shape, value.dtype, value.device) for key, value in values.items()]
    running: list[tuple[Tensor | None, Pending, Bucket]] = []
    for bucket in plan_buckets(homes, bucket_bytes=bucket_bytes):
        if len(bucket.slots) == 1:  # nothing to put together
            running.append((None, collectives.broadcast(values[bucket.slots[0].key]), bucket))
            continue
        flat = torch.cat([values[slot.key].reshape(-1) for slot in bucket.slots])
        running.append((flat, collectives.broadcast(flat), bucket))
    for flat, pending, bucket in running:
        pending.wait()
        if flat is not None:
            for slot in bucket.slots:
                values[slot.key].copy_(slot.of(flat))
