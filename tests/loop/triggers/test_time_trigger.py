from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ostinato.loop import TimeTrigger

PERIODS = [0.1, 0.25, 0.3, 1, 2.5, 10, Fraction(1, 3), Fraction(2, 7)]


def boundaries_reached(time: float, period: float | Fraction) -> int:
    """How many multiples of the period, as the clock tells them, do not lie after a time."""
    exact = Fraction(str(period))
    number = int(Fraction(str(time)) // exact)
    return number + (float((number + 1) * exact) <= time)


@given(
    period=st.sampled_from(PERIODS),
    gaps=st.lists(st.floats(0, 7, allow_nan=False), max_size=40),
    cuts=st.sets(st.integers(0, 40)),
)
@example(period=0.25, gaps=[1.9999999999999991, 0.125], cuts=set())
def test_it_fires_once_when_boundaries_were_reached_whatever_the_resumes(stand_in, period, gaps, cuts) -> None:
    trainer = stand_in()
    trigger = TimeTrigger(period)
    trigger.initialize(trainer)
    reached = 0
    for place, gap in enumerate(gaps):
        if place in cuts:
            state = trigger.state_dict()
            trigger = TimeTrigger(period)
            trigger.load_state_dict(state)
            trigger.initialize(trainer)
        trainer.elapsed_time += gap
        before, reached = reached, boundaries_reached(trainer.elapsed_time, period)
        assert trigger(trainer) == (reached > before)


@pytest.mark.parametrize("period", PERIODS)
def test_time_that_stands_on_a_boundary_fires_once(stand_in, period) -> None:
    trigger = TimeTrigger(period)
    trigger.initialize(stand_in())
    for number in range(1, 50):
        time = float(number * Fraction(str(period)))
        assert [trigger(stand_in(elapsed_time=time)) for _ in range(2)] == [True, False], number


def test_a_period_that_the_clock_cannot_tell_apart_holds_nothing_up(stand_in) -> None:
    trigger = TimeTrigger(1e-30)
    trigger.initialize(stand_in())
    assert [trigger(stand_in(elapsed_time=time)) for time in (1.0, 2.0)] == [True, True]


def test_a_tenth_of_a_second_is_met_at_each_tenth(stand_in) -> None:
    trigger = TimeTrigger(0.1)
    trigger.initialize(stand_in())
    assert [trigger(stand_in(elapsed_time=time)) for time in (0.1, 0.2, 0.3, 0.35, 0.4)] == [
        True,
        True,
        True,
        False,
        True,
    ]


def test_iterations_that_another_trigger_has_saved_are_not_taken_for_seconds(stand_in) -> None:
    trigger = TimeTrigger(10)
    trigger.load_state_dict({"unit": "iteration", "baseline": 5})
    trigger.initialize(stand_in(elapsed_time=25.0))
    assert [trigger(stand_in(elapsed_time=time)) for time in (26.0, 30.0)] == [False, True]
