"""What can be asked of a loader of batches, and the same loader with other batches."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

from torch import Generator
from torch.utils.data import DataLoader, IterableDataset

from ostinato.errors import StateError


def loader_batch_size(loader: Any) -> int | None:
    """What a loader says about the size of a batch; ``None`` when it says nothing."""
    for owner in (loader, getattr(loader, "batch_sampler", None)):
        size = getattr(owner, "batch_size", None)
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            return size
    return None


def loader_parts(loader: Any) -> Iterator[Any]:
    """The loader, its batch sampler and its samplers, as far as they are there; each object once."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    parts = (loader, batch_sampler, getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None))
    yield from {id(part): part for part in parts if part is not None}.values()


def loader_generators(loader: Any) -> list[Generator]:
    """The random generators that a loader and its samplers own."""
    found = (getattr(part, "generator", None) for part in loader_parts(loader))
    return list({id(generator): generator for generator in found if isinstance(generator, Generator)}.values())


def can_choose_batches(loader: Any) -> bool:
    """Whether batches of a loader can be left out without reading them."""
    return (
        type(loader) is DataLoader  # a subclass may do anything with its batches
        and loader.batch_sampler is not None
        and not isinstance(loader.dataset, IterableDataset)
    )


def with_batch_sampler(loader: DataLoader[Any], batch_sampler: Any) -> DataLoader[Any]:
    """The same loader with other batches.

    :param batch_sampler: yields lists of indices.
    """
    return DataLoader(
        loader.dataset,
        batch_sampler=batch_sampler,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
    )


def no_batch_error(loader: Any) -> StateError:
    """The error of a loader that yields nothing, with the numbers that explain it."""
    facts = f"{type(loader).__name__} yields no batch"
    dataset = getattr(loader, "dataset", None)
    samples = len(dataset) if isinstance(dataset, Sized) else None
    size = loader_batch_size(loader)
    if samples is not None and size is not None:
        facts += f": {samples} samples, {size} in a batch"
        if getattr(loader, "drop_last", False):
            facts += ", incomplete batches dropped"
    return StateError(
        f"{facts}.",
        advice="Add data, make the batch smaller, or give a loader that can be walked more than once.",
        samples=samples,
        batch_size=size,
    )
