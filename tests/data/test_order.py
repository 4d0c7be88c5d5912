import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.data.order import SideOrders
from ostinato.errors import ArgumentValueError

COUNTS = st.lists(st.integers(1, 40), min_size=1, max_size=4)


@given(COUNTS, st.integers(0, 2**32), st.data())
def test_cutting_the_order_into_batches_does_not_change_it(counts, seed, data):
    side = data.draw(st.integers(0, len(counts) - 1))
    start = data.draw(st.integers(0, 200))
    sizes = data.draw(st.lists(st.integers(0, 70), min_size=1, max_size=5))
    whole = SideOrders(counts, seed).indices(side, start, sum(sizes))
    cut = SideOrders(counts, seed)
    pieces = []
    for size in sizes:
        pieces.append(cut.indices(side, start, size))
        start += size
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


@given(COUNTS, st.integers(0, 1000))
def test_every_sample_appears_once_before_any_appears_again(counts, seed):
    orders = SideOrders(counts, seed)
    for side, count in enumerate(counts):
        drawn = orders.indices(side, 0, 3 * count)
        for number in range(3):
            assert sorted(drawn[number * count : (number + 1) * count].tolist()) == list(range(count))


def test_the_small_side_carries_its_permutation_into_the_next_pass():
    orders = SideOrders([10, 4], 0)
    first, second = orders.indices(1, 0, 10), orders.indices(1, 10, 10)
    # The third permutation begins in the first pass and ends in the second.
    assert sorted([*first[8:].tolist(), *second[:2].tolist()]) == [0, 1, 2, 3]


def test_sides_of_equal_size_are_paired_differently_in_each_pass():
    orders = SideOrders([50, 50], 0)
    pairs = [set(zip(orders.indices(0, n * 50, 50), orders.indices(1, n * 50, 50), strict=True)) for n in range(2)]
    assert len(pairs[0] & pairs[1]) < 10
    assert (orders.indices(0, 0, 50) != orders.indices(1, 0, 50)).any()


def test_a_side_s_order_does_not_depend_on_the_other_sides():
    np.testing.assert_array_equal(SideOrders([7, 5], 3).indices(1, 0, 20), SideOrders([99, 5, 8], 3).indices(1, 0, 20))


def test_memory_for_permutations_is_bounded():
    orders = SideOrders([3], 0)
    orders.indices(0, 0, 3000)
    assert len(orders._permutations[0]) <= 4


def test_the_larger_side_gives_the_length_of_a_pass():
    assert SideOrders([3, 8, 5], 0).pass_length == 8


@pytest.mark.parametrize("counts", [[], [3, 0]])
def test_sides_without_samples_are_refused(counts):
    with pytest.raises(ArgumentValueError, match="samples"):
        SideOrders(counts, 0)
