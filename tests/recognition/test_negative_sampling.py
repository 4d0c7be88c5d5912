"""Which classes take part: all positives, and others by fair chance."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import ArgumentValueError
from ostinato.recognition.negative_sampling import NegativeSampler, number_sampled, positions_of, positives_of


@st.composite
def situations(draw: st.DrawFn) -> tuple[int, np.ndarray, int]:
    classes = draw(st.integers(1, 60))
    positives = np.array(sorted(draw(st.sets(st.integers(0, classes - 1), max_size=20))), dtype=np.int64)
    return classes, positives, draw(st.integers(0, classes))


@given(situation=situations(), seed=st.integers(0, 5), rank=st.integers(0, 3), number=st.integers(0, 10))
def test_all_positives_take_part_and_others_make_up_the_count(situation, seed: int, rank: int, number: int) -> None:
    classes, positives, count = situation
    chosen = NegativeSampler(classes, seed, rank).sample(positives, count, number)
    assert chosen.dtype == np.int64
    assert len(chosen) == max(count, len(positives))
    assert (np.diff(chosen) > 0).all()
    assert not len(chosen) or (chosen[0] >= 0 and chosen[-1] < classes)
    assert set(positives.tolist()) <= set(chosen.tolist())
    assert np.array_equal(chosen, NegativeSampler(classes, seed, rank).sample(positives, count, number))


@pytest.mark.parametrize("count", [5, 15])  # by drawing those that take part, and those that do not
def test_every_negative_is_equally_likely(count: int) -> None:
    sampler = NegativeSampler(22, 7, 0)
    positives = np.array([3, 8])
    times = Counter()
    for number in range(2000):
        times.update(sampler.sample(positives, count, number).tolist())
    assert times[3] == times[8] == 2000
    chance = (count - 2) / 20
    for other in set(range(22)) - {3, 8}:
        assert abs(times[other] - 2000 * chance) < 5 * (2000 * chance * (1 - chance)) ** 0.5


def test_ranks_draws_and_seeds_differ() -> None:
    nobody = np.empty(0, dtype=np.int64)
    seen = {
        tuple(NegativeSampler(1000, seed, rank).sample(nobody, 50, number))
        for seed in (0, 1)
        for rank in (0, 1)
        for number in (0, 1)
    }
    assert len(seen) == 8


def test_the_work_is_that_of_the_chosen_classes(monkeypatch) -> None:
    asked = []
    sampler = NegativeSampler(10**12, 0, 0)  # nothing of that length could be made
    words = sampler._random.words
    monkeypatch.setattr(
        sampler._random, "words", lambda place, lanes, stream: asked.append(lanes) or words(place, lanes, stream)
    )
    assert len(sampler.sample(np.array([5, 10**11]), 1000, 0)) == 1000
    assert sum(asked) < 3000


def test_few_free_classes_between_many_positives_are_found_in_one_drawing(monkeypatch) -> None:
    asked = []
    sampler = NegativeSampler(20000, 0, 0)
    words = sampler._random.words
    monkeypatch.setattr(
        sampler._random, "words", lambda place, lanes, stream: asked.append(lanes) or words(place, lanes, stream)
    )
    free = np.array([3, 777, 8000, 19999])
    positives = np.setdiff1d(np.arange(20000), free)
    found = [sampler.sample(positives, 19997, draw) for draw in range(8)]
    assert all(len(np.setdiff1d(chosen, positives)) == 1 for chosen in found)
    assert len({int(np.setdiff1d(chosen, positives)[0]) for chosen in found}) > 1
    assert sum(asked) <= 8 * 128 * 2


@given(
    labels=st.lists(st.integers(0, 99), max_size=30),
    first=st.integers(0, 99),
    size=st.integers(0, 99),
    chosen=st.sets(st.integers(0, 98), max_size=30),
)
def test_positions_lead_back_to_the_labels(labels: list[int], first: int, size: int, chosen: set[int]) -> None:
    array = np.array(labels, dtype=np.int64)
    rows = np.array(sorted(row for row in chosen if row < size), dtype=np.int64)
    for among in (rows, None):
        places = positions_of(array, first, among, size)
        for label, place in zip(labels, places.tolist(), strict=True):
            here = range(size) if among is None else among.tolist()
            assert (place == -1) == (label - first not in here)
            assert place == -1 or here[place] == label - first
    assert positives_of(array, first, first + size).tolist() == sorted(
        {label - first for label in labels if first <= label < first + size}
    )


def test_rates_are_numbers_from_0_to_1() -> None:
    assert [number_sampled(rate, 37) for rate in (0.0, 0.1, 0.6, 1.0)] == [0, 3, 22, 37]
    for rate in (-0.1, 1.1, float("nan")):
        with pytest.raises(ArgumentValueError, match="sampling rate"):
            number_sampled(rate, 37)
