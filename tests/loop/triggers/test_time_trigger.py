from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ostinato.loop import TimeTrigger


@given(
    period=st.sampled_from([0.1, 0.25, 0.3, 1, 2.5, 10]),
    gaps=st.lists(st.floats(0, 7, allow_nan=False), max_size=40),
    cuts=st.sets(st.integers(0, 40)),
)
def test_it_never_fires_twice_within_a_period_whatever_the_resumes(stand_in, period, gaps, cuts) -> None:
    trainer = stand_in()
    trigger = TimeTrigger(period)
    trigger.initialize(trainer)
    fired = []
    for place, gap in enumerate(gaps):
        if place in cuts:
            state = trigger.state_dict()
            trigger = TimeTrigger(period)
            trigger.load_state_dict(state)
            trigger.initialize(trainer)
        trainer.elapsed_time += gap
        if trigger(trainer):
            fired.append(trainer.elapsed_time)
    assert len(fired) <= trainer.elapsed_time / period + 1e-9
    numbers = [round(time / period, 9) // 1 for time in fired]
    assert numbers == sorted(set(numbers))


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
