import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.data.counter_random import CounterRandom, philox4x32, to_normal
from ostinato.errors import ArgumentValueError


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_known_answers(counter, key, expected):
    # The known-answer vectors of Random123 for philox4x32-10.
    assert philox4x32(np.array(counter, dtype=np.uint64)[:, None], key)[:, 0].tolist() == expected


@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8),
    st.integers(1, 20),
    st.integers(0, 2**32 - 1),
)
def test_numbers_do_not_depend_on_the_other_positions_of_the_call(seed, positions, lanes, stream):
    random = CounterRandom(seed, "test")
    together = random.words(np.array(positions, dtype=np.uint64), lanes, stream)
    alone = [
        random.words(np.array([position], dtype=np.uint64), lanes + 3, [stream])[0, :lanes] for position in positions
    ]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("change", ["seed", "purpose", "stream", "position"])
def test_every_part_of_the_place_matters(change):
    base = CounterRandom(1, "a").words([5], 8, 0)
    other = {
        "seed": lambda: CounterRandom(2, "a").words([5], 8, 0),
        "purpose": lambda: CounterRandom(1, "b").words([5], 8, 0),
        "stream": lambda: CounterRandom(1, "a").words([5], 8, 1),
        "position": lambda: CounterRandom(1, "a").words([5 + 2**32], 8, 0),
    }[change]()
    assert not (base == other).any()


def test_uniform_numbers_are_uniform_and_uncorrelated():
    drawn = CounterRandom(0, "quality").uniform(np.arange(20_000), 8)
    assert drawn.min() > 0
    assert drawn.max() < 1
    counts, _ = np.histogram(drawn, bins=256, range=(0, 1))
    expected = drawn.size / 256
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert 255 - 5 * np.sqrt(510) < chi_square < 255 + 5 * np.sqrt(510)
    # Between lanes, and between a lane and the next position's.
    shifted = np.concatenate([drawn[:-1], drawn[1:]], axis=1)
    correlations = np.corrcoef(shifted.T)[np.triu_indices(16, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(20_000)


def test_normal_numbers_have_the_moments_of_the_normal_distribution():
    drawn = to_normal(CounterRandom(0, "quality").uniform(np.arange(20_000), 10))
    count = drawn.size
    assert abs(drawn.mean()) < 5 / np.sqrt(count)
    assert abs((drawn**2).mean() - 1) < 5 * np.sqrt(2 / count)
    assert abs((drawn**3).mean()) < 5 * np.sqrt(15 / count)
    assert abs((drawn**4).mean() - 3) < 5 * np.sqrt(96 / count)
    assert abs(np.corrcoef(drawn.T)[np.triu_indices(10, 1)]).max() < 5 / np.sqrt(20_000)


def test_the_first_normal_numbers_do_not_depend_on_how_many_are_made():
    uniforms = CounterRandom(3, "x").uniform(np.arange(4), 8)
    np.testing.assert_array_equal(to_normal(uniforms)[:, :4], to_normal(uniforms[:, :4]))


@given(st.integers(1, 300), st.integers(0, 2**40), st.integers(0, 9))
def test_a_permutation_holds_every_number_once(count, index, stream):
    assert sorted(CounterRandom(9, "order").permutation(count, index, stream).tolist()) == list(range(count))


def test_all_permutations_of_three_are_about_equally_frequent():
    random = CounterRandom(4, "order")
    seen: dict[tuple[int, ...], int] = {}
    for index in range(3000):
        order = tuple(random.permutation(3, index).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    assert all(abs(count - 500) < 5 * np.sqrt(500) for count in seen.values())


def test_a_negative_number_of_lanes_is_refused():
    with pytest.raises(ArgumentValueError, match="lanes is -1"):
        CounterRandom(0, "x").words([0], -1)


def test_no_positions_give_no_numbers():
    assert CounterRandom(0, "x").words([], 6).shape == (0, 6)
