from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset

from ostinato.loop.loaders import (
    can_choose_batches,
    loader_batch_size,
    loader_generators,
    no_batch_error,
    with_batch_sampler,
)

DATA = TensorDataset(torch.arange(10))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


class Own(DataLoader[Any]):
    """A subclass, that may do anything with its batches."""


@pytest.mark.parametrize(
    ("loader", "size", "chooses"),
    [
        (DataLoader(DATA, batch_size=3), 3, True),
        (DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 4, False)), 4, True),
        (DataLoader(DATA, batch_size=None), None, False),
        (DataLoader(Stream(), batch_size=2), 2, False),
        (Own(DATA, batch_size=5), 5, False),
        ([1, 2], None, False),
    ],
)
def test_what_a_loader_says(loader: Any, size: int | None, chooses: bool) -> None:
    assert loader_batch_size(loader) == size
    assert can_choose_batches(loader) is chooses


def test_generators_of_a_loader_and_its_samplers_are_found_once() -> None:
    first, second = torch.Generator(), torch.Generator()
    assert loader_generators(DataLoader(DATA, shuffle=True, generator=first)) == [first]
    sampler = RandomSampler(DATA, generator=second)
    assert loader_generators(DataLoader(DATA, sampler=sampler, generator=first)) == [first, second]
    assert loader_generators(DataLoader(DATA, batch_sampler=BatchSampler(sampler, 2, False))) == [second]
    assert loader_generators([1]) == []


def test_the_same_loader_with_other_batches() -> None:
    loader = DataLoader(DATA, batch_size=4, collate_fn=lambda rows: [int(row[0]) for row in rows])
    assert list(with_batch_sampler(loader, [[1, 2], [9]])) == [[1, 2], [9]]


def test_the_error_of_an_empty_loader_has_the_numbers_it_knows() -> None:
    assert str(no_batch_error(DataLoader(DATA, batch_size=99, drop_last=True))).startswith(
        "DataLoader yields no batch: 10 samples, 99 in a batch, incomplete batches dropped."
    )
    assert str(no_batch_error([])).startswith("list yields no batch. Add data")
