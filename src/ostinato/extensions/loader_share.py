"""The batches of a loader that one rank takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from ostinato.dist import Group
from ostinato.errors import ArgumentValueError
from ostinato.loop.loaders import can_choose_batches, loader_parts, with_batch_sampler


def share_of(loader: Any, group: Group) -> Iterable[Any]:
    """Every n-th batch of a loader that walks the same whole set on each of n ranks: all ranks together see each batch
    once, and the batches are those of one process.

    Data that belongs to other ranks is not read, as far as the loader lets batches be chosen.

    :raises ArgumentValueError: when the loader gives each rank a part of its own already.
    """
    if group.size == 1:
        return loader
    for part in loader_parts(loader):
        replicas = getattr(part, "num_replicas", 1)
        if isinstance(replicas, int) and replicas > 1:
            raise ArgumentValueError(
                f"{type(part).__name__} already cuts the data for {replicas} ranks, and repeats samples to make the "
                "parts equal.",
                advice="Give the evaluator a loader over the whole set; it takes each rank's share by itself. With "
                "shard=False every rank evaluates all that its loader yields.",
                value=part,
            )
    if can_choose_batches(loader):
        return with_batch_sampler(loader, _EveryNth(loader.batch_sampler, group))
    return islice(iter(loader), group.rank, None, group.size)


class _EveryNth:
    """A batch sampler that keeps one rank's batches."""

    def __init__(self, batch_sampler: Any, group: Group) -> None:
        self._batch_sampler = batch_sampler
        self._group = group

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._batch_sampler), self._group.rank, None, self._group.size)

    def __len__(self) -> int:
        return len(range(self._group.rank, len(self._batch_sampler), self._group.size))
