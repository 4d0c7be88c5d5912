from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import ArgumentValueError
from ostinato.recognition.data.order import BalancedOrder, ShuffledOrder


@given(st.integers(1, 40), st.integers(0, 9), st.integers(0, 100))
def test_every_pass_is_a_permutation_and_no_position_depends_on_the_others_asked_for(
    count: int, seed: int, start: int
) -> None:
    order = ShuffledOrder(count, seed)
    whole = order.indices(np.arange(4 * count))
    for number in range(4):
        assert sorted(whole[number * count : (number + 1) * count].tolist()) == list(range(count))
    asked = np.arange(start, 4 * count, 3)
    assert np.array_equal(ShuffledOrder(count, seed).indices(asked), whole[asked])


def test_passes_and_seeds_have_their_own_orders() -> None:
    orders = [ShuffledOrder(50, seed).indices(np.arange(100)) for seed in (0, 1)]
    rows = [tuple(order[first : first + 50].tolist()) for order in orders for first in (0, 50)]
    assert len(set(rows)) == 4


def test_a_large_order_is_made_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ShuffledOrder(1001, 3).indices(np.arange(1001))
    monkeypatch.setattr("ostinato.recognition.data.order._PIECE", 64)
    assert np.array_equal(ShuffledOrder(1001, 3).indices(np.arange(1001)), whole)


def test_orders_are_uniform() -> None:
    first = np.array([ShuffledOrder(3, seed).indices(np.arange(3)) for seed in range(900)])
    assert all(abs(int((first[:, place] == number).sum()) - 300) < 75 for place in range(3) for number in range(3))


def test_going_back_and_forth_gives_the_same() -> None:
    order = ShuffledOrder(10, 1)
    before = [order.indices(np.arange(first, first + 10)).tolist() for first in (0, 10, 20, 30)]
    assert [order.indices(np.arange(first, first + 10)).tolist() for first in (30, 0, 20, 10)][1] == before[0]


def test_threads_may_ask_at_the_same_time() -> None:
    order, alone = ShuffledOrder(300, 1), ShuffledOrder(300, 1)
    asked = [np.arange(first, first + 50) for first in range(0, 3000, 50)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(order.indices, asked))
    assert all(np.array_equal(each, alone.indices(where)) for each, where in zip(found, asked, strict=True))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.integers(0, 5))
def test_balanced_orders_show_identities_and_their_pictures_equally_often(labels: list[int], seed: int) -> None:
    array = np.array(labels, np.int64)
    present, counts = np.unique(array, return_counts=True)
    rounds = int(counts.max()) * 2
    chosen = BalancedOrder(array, seed).indices(np.arange(rounds * len(present)))
    for first in range(0, len(chosen), len(present)):
        assert sorted(array[chosen[first : first + len(present)]].tolist()) == present.tolist()
    for label, count in zip(present, counts, strict=True):
        own = chosen[array[chosen] == label]
        for first in range(0, len(own) - int(count) + 1, int(count)):
            assert sorted(own[first : first + count].tolist()) == np.flatnonzero(array == label).tolist()


def test_empty_sets_are_refused() -> None:
    with pytest.raises(ArgumentValueError, match="0 pictures"):
        ShuffledOrder(0, 0)
    with pytest.raises(ArgumentValueError, match="no pictures"):
        BalancedOrder(np.empty(0, np.int64), 0)
