"""Drawing without repeats, and sharing out evenly."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.data.counter_random import CounterRandom
from ostinato.recognition.verification.distinct import distinct, shared_evenly

RANDOM = CounterRandom(1, "test")


@settings(max_examples=40)
@given(
    total=st.one_of(st.integers(1, 200), st.integers(4000, 4400), st.integers(2**20, 2**40)),
    part=st.floats(0, 1),
    stream=st.integers(0, 1000),
)
def test_numbers_are_different_and_below_the_total(total: int, part: float, stream: int) -> None:
    count = min(total, int(part * min(total, 3000)))
    drawn = distinct(RANDOM, total, count, stream)
    assert len(drawn) == len(set(drawn.tolist())) == count
    assert ((drawn >= 0) & (drawn < total)).all()
    assert drawn.tolist() == distinct(RANDOM, total, count, stream).tolist()


def test_all_numbers_are_drawn_where_all_are_wanted_and_they_are_spread_where_not() -> None:
    assert sorted(distinct(RANDOM, 500, 500, 0).tolist()) == list(range(500))
    counts = np.histogram(distinct(RANDOM, 10**6, 10_000, 1), bins=10, range=(0, 10**6))[0]
    assert (abs(counts - 1000) < 150).all()


@settings(max_examples=60)
@given(capacities=st.lists(st.integers(0, 9), min_size=1, max_size=12), part=st.floats(0, 1), seed=st.integers(0, 99))
def test_shares_are_as_even_as_capacities_allow(capacities: list[int], part: float, seed: int) -> None:
    total = int(part * sum(capacities))
    order = np.random.default_rng(seed).permutation(len(capacities))
    shares = shared_evenly(capacities, total, order)
    assert shares.sum() == total
    assert (shares <= capacities).all()
    highest = int(shares.max())
    # Whoever could take more has not less than the highest, but for the rest that cannot be shared.
    assert all(share >= highest - 1 for share, room in zip(shares, capacities, strict=True) if share < room)
