from __future__ import annotations

import itertools
import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.loop import IntervalTrigger

steps = st.lists(st.integers(0, 12), min_size=1, max_size=40)
periods = st.integers(1, 15)


def fired(trigger: IntervalTrigger, trainer: Any, indices: list[int]) -> list[int]:
    result = []
    for index in indices:
        trainer.updater.state.iteration = index
        if trigger(trainer):
            result.append(index)
    return result


def walk(start: int, steps: list[int]) -> list[int]:
    indices = []
    for step in steps:
        start += step
        indices.append(start)
    return indices


@given(period=periods, start=st.integers(0, 50), steps=steps, cuts=st.sets(st.integers(0, 40)))
def test_replacing_it_by_one_with_the_loaded_state_changes_nothing(stand_in, period, start, steps, cuts) -> None:
    indices = walk(start, steps)
    whole = IntervalTrigger(period, "iteration")
    whole.initialize(stand_in(iteration=start))
    expected = fired(whole, stand_in(), indices)
    trigger = IntervalTrigger(period, "iteration")
    trigger.initialize(stand_in(iteration=start))
    found = []
    before = start
    for place, index in enumerate(indices):
        if place in cuts:
            state = json.loads(json.dumps(trigger.state_dict()))
            trigger = IntervalTrigger(period, "iteration")
            trigger.load_state_dict(state)
            trigger.initialize(stand_in(iteration=before))
        found += fired(trigger, stand_in(), [index])
        before = index
    assert found == expected


@given(period=periods, start=st.integers(0, 50), length=st.integers(1, 60))
def test_in_steps_of_one_it_fires_at_the_multiples_of_the_period(stand_in, period, start, length) -> None:
    trigger = IntervalTrigger(period, "iteration")
    trigger.initialize(stand_in(iteration=start))
    indices = list(range(start + 1, start + length + 1))
    assert fired(trigger, stand_in(), indices) == [index for index in indices if index % period == 0]


@given(period=periods, start=st.integers(0, 50), steps=steps)
def test_it_never_fires_more_often_than_boundaries_were_passed(stand_in, period, start, steps) -> None:
    indices = walk(start, steps)
    trigger = IntervalTrigger(period, "iteration")
    trigger.initialize(stand_in(iteration=start))
    number = len(fired(trigger, stand_in(), indices))
    passed = indices[-1] // period - start // period
    assert number <= passed
    if max(steps) <= period:
        assert number == passed


@given(period=periods, indices=st.lists(st.integers(0, 40), min_size=2, max_size=30))
def test_an_index_that_stands_still_or_goes_back_never_fires(stand_in, period, indices) -> None:
    trigger = IntervalTrigger(period, "iteration")
    trigger.initialize(stand_in(iteration=indices[0]))
    trainer = stand_in()
    for before, index in itertools.pairwise(indices):
        trainer.updater.state.iteration = index
        assert trigger(trainer) == (index > before and index // period > before // period)


@given(numerator=st.integers(1, 300), decimals=st.integers(0, 2), length=st.integers(1, 13), updates=st.integers(1, 60))
def test_fractions_of_an_epoch_are_exact(stand_in, numerator, decimals, length, updates) -> None:
    period = Fraction(numerator, 10**decimals)
    trigger = IntervalTrigger(float(period), "epoch")
    trainer = stand_in(updates_per_epoch=length)
    trigger.initialize(trainer)
    before = Fraction(0)
    for update in range(1, updates + 1):
        trainer.updater.state.advance()
        now = Fraction(update, length) if period.denominator > 1 else Fraction(update // length)
        assert trigger(trainer) == (now // period > before // period)
        before = now
        restored = IntervalTrigger(float(period), "epoch")
        restored.load_state_dict(json.loads(json.dumps(trigger.state_dict())))
        assert restored.state_dict() == trigger.state_dict()


@given(
    period=periods,
    after=st.integers(0, 30),
    before=st.one_of(st.none(), st.integers(1, 60)),
    steps=steps,
)
def test_only_boundaries_between_after_and_before_fire(stand_in, period, after, before, steps) -> None:
    trigger = IntervalTrigger(period, "iteration", after=after, before=before)
    trigger.initialize(stand_in())
    previous = 0
    trainer = stand_in()
    for index in walk(0, steps):
        passed = [m for m in range(period, index + 1, period) if previous < m <= index]
        wanted = any(after < m and (before is None or m < before) for m in passed)
        trainer.updater.state.iteration = index
        assert trigger(trainer) == wanted
        previous = index


def test_a_fraction_of_an_epoch_needs_a_length(stand_in) -> None:
    with pytest.raises(RuntimeError, match="length of a pass is unknown"):
        IntervalTrigger(0.5, "epoch").initialize(stand_in())


def test_counting_tokens_needs_an_updater_that_counts_them(stand_in) -> None:
    with pytest.raises(RuntimeError, match="counts tokens"):
        IntervalTrigger(5, "token").initialize(stand_in())
    IntervalTrigger(5, "token").initialize(stand_in(tokens=0))


@pytest.mark.parametrize("saved", ["1/0", "x", "-1/2", "1" * 100, True, -1, float("nan"), [1]])
def test_a_damaged_base_line_is_refused(saved: Any) -> None:
    with pytest.raises(ValueError, match="base line"):
        IntervalTrigger(5, "iteration").load_state_dict({"unit": "iteration", "baseline": saved})


def test_the_message_names_argument_and_value() -> None:
    with pytest.raises(ValueError, match=r"IntervalTrigger: period must be above 0, not -3"):
        IntervalTrigger(-3, "iteration")
    with pytest.raises(ValueError, match=r"unit is 'steps'\. Use one of iteration, epoch"):
        IntervalTrigger(3, "steps")


@pytest.mark.parametrize(
    ("period", "unit", "loaded", "at", "indices", "expected"),
    [
        # saved before the trigger was asked at 100: late rather than never
        (100, "iteration", {"unit": "iteration", "baseline": 99}, 100, [101, 102, 200], [101, 200]),
        # saved later than the counters: the counters win
        (100, "iteration", {"unit": "iteration", "baseline": 500}, 100, [101, 200, 201], [200]),
        # another period since: what lay before the resume is past
        (500, "iteration", {"unit": "iteration", "baseline": 1500}, 1500, [1501, 1999, 2000, 2001], [2000]),
        # another unit since: the base line means nothing
        (1, "sample", {"unit": "iteration", "baseline": 1}, 3, [3, 3, 4], [4]),
        (10, "iteration", {"unit": "iteration", "baseline": None}, 37, [38, 39, 40, 41], [40]),
        (10, "iteration", {}, 9, [10, 11, 20], [10, 20]),
    ],
)
def test_the_saved_base_line_counts_if_it_fits(stand_in, period, unit, loaded, at, indices, expected) -> None:
    counter = {"iteration": "iteration", "sample": "samples"}[unit]
    trigger = IntervalTrigger(period, unit)
    trigger.load_state_dict(loaded)
    trigger.initialize(stand_in(**{counter: at}))
    assert [index for index in indices if trigger(stand_in(**{counter: index}))] == expected


def test_the_base_line_is_the_index_of_the_last_call_whether_it_fired_or_not(stand_in) -> None:
    trigger = IntervalTrigger(5, "iteration")
    assert trigger.state_dict() == {"unit": "iteration", "baseline": None}
    trigger.initialize(stand_in(iteration=3))
    for index in (4, 5, 7):
        trigger(stand_in(iteration=index))
        assert trigger.state_dict() == {"unit": "iteration", "baseline": index}
