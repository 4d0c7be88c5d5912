from __future__ import annotations

import logging
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_threads import on_ranks

from ostinato.dist import Alone
from ostinato.dist.per_rank import RankStates
from ostinato.loop.triggers.observed_mean import ObservedMean

ALONE = Alone()


def observed(values, key="loss"):
    mean = ObservedMean(key, "test")
    for value in values:
        mean.take({} if value is None else {key: value})
    return mean


def test_the_mean_is_that_of_all_values_since_the_last_one() -> None:
    mean = observed([1, 2.0, None, torch.tensor(6.0)])
    assert mean.take_mean(ALONE) == 3
    assert mean.take_mean(ALONE) is None
    mean.take({"loss": 5, "other": 7})
    assert mean.take_mean(ALONE) == 5


def test_a_pair_counts_with_its_weight() -> None:
    assert observed([(1, 3), (torch.tensor(5.0), 1)]).take_mean(ALONE) == 2
    assert observed([(1, torch.tensor(3)), (5, torch.tensor(1.0))]).take_mean(ALONE) == 2


@pytest.mark.parametrize("zero", [0, torch.tensor(0.0)])
def test_a_value_without_weight_does_not_count(zero) -> None:
    assert observed([(math.nan, zero), (4, 1)]).take_mean(ALONE) == 4
    assert observed([(torch.tensor(math.inf), zero)] * 300 + [(4, 1)]).take_mean(ALONE) == 4


def test_an_interval_whose_weights_only_the_device_knows_to_be_0_has_no_mean() -> None:
    assert math.isnan(observed([(4, torch.tensor(0.0))]).take_mean(ALONE))
    assert observed([(4, 0)]).take_mean(ALONE) is None


@given(
    values=st.lists(
        st.tuples(st.floats(-1e3, 1e3, width=32), st.integers(0, 4), st.booleans(), st.booleans()), max_size=30
    ),
    folded=st.booleans(),
)
def test_tensors_give_what_numbers_give(values, folded) -> None:
    times = 20 if folded else 1  # more than are kept one by one
    numbers = observed([(value, weight) for value, weight, _, _ in values] * times)
    tensors = observed(
        [
            (torch.tensor(value) if first else value, torch.tensor(weight) if second else weight)
            for value, weight, first, second in values
        ]
        * times
    )
    expected, found = numbers.take_mean(ALONE), tensors.take_mean(ALONE)
    if expected is None:  # only the numbers know that all weights are 0
        assert found is None or math.isnan(found)
    else:
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-9)


def test_no_value_is_read_before_the_mean_is_asked_for() -> None:
    # A tensor of the device "meta" has no value: whoever tries to read it gets an exception.
    unreadable = torch.ones((), device="meta")
    mean = observed([unreadable, (unreadable, 2), (unreadable, unreadable), (2, unreadable)] * 100)
    with pytest.raises((NotImplementedError, RuntimeError)):
        mean.take_mean(ALONE)


def test_a_long_interval_keeps_few_tensors() -> None:
    mean = observed([torch.tensor(1.0)] * 10_000)
    assert len(mean._pending) < 300
    assert mean.take_mean(ALONE) == 1


def test_the_sums_are_saved_with_what_is_still_on_the_device() -> None:
    mean = observed([torch.tensor(1.0), (3, 2)])
    again = ObservedMean("loss", "test")
    again.load_state_dict(mean.state_dict())
    for both in (mean, again):
        both.take({"loss": 5})
        assert both.take_mean(ALONE) == 3


@given(st.lists(st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 4)), max_size=5), min_size=2, max_size=2))
def test_all_ranks_get_the_mean_of_one_process(by_rank) -> None:
    means = on_ranks(2, lambda group: observed(by_rank[group.rank]).take_mean(group))
    assert means == [observed([pair for pairs in by_rank for pair in pairs]).take_mean(ALONE)] * 2


@settings(max_examples=30)
@given(
    before=st.lists(st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 4)), max_size=3), min_size=1, max_size=4),
    after=st.lists(st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 4)), max_size=3), min_size=1, max_size=4),
)
def test_the_sums_of_all_ranks_go_on_whatever_their_number(before, after) -> None:
    """Saved by as many ranks as ``before`` has rows, continued by as many as ``after`` has."""

    def begin(group):
        mean = observed([])
        mean.initialize(group)
        for value in before[group.rank]:
            mean.take({"loss": value})
        return mean.state_dict()

    saved = on_ranks(len(before), begin)
    if len(before) > 1:
        state = RankStates(len(before), lambda rank: saved[rank].state)
    else:
        (state,) = saved

    def go_on(group):
        mean = observed([])
        mean.load_state_dict(state)
        mean.initialize(group)
        for value in after[group.rank]:
            mean.take({"loss": value})
        return mean.take_mean(group)

    everything = [value for rows in (before, after) for row in rows for value in row]
    assert on_ranks(len(after), go_on) == [observed(everything).take_mean(ALONE)] * len(after)


def test_what_is_no_number_is_left_out_with_one_warning(caplog) -> None:
    with caplog.at_level(logging.WARNING):
        mean = observed(["x", torch.ones(2), (1, "x"), 4.0])
    assert mean.take_mean(ALONE) == 4
    assert len(caplog.records) == 1


@pytest.mark.parametrize("weight", [-1, math.inf, math.nan])
def test_a_weight_below_0_is_refused(weight) -> None:
    with pytest.raises(ValueError, match="weight of 'loss'"):
        observed([(1, weight)])


@pytest.mark.parametrize(("key", "kind"), [(3, TypeError), (None, TypeError), ("", ValueError)])
def test_a_key_is_a_text(key, kind) -> None:
    with pytest.raises(kind, match="test: the key"):
        ObservedMean(key, "test")
