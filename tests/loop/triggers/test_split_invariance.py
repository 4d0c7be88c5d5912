"""Replacing any trigger by a new one with its saved memory, at any point, changes none of its answers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.loop import (
    BestValueTrigger,
    EarlyStoppingTrigger,
    FunctionTrigger,
    IntervalTrigger,
    LimitTrigger,
    ManualScheduleTrigger,
    MaxValueTrigger,
    MinValueTrigger,
    OnceTrigger,
    ThresholdTrigger,
    TimeTrigger,
    Trigger,
)

LENGTH = 7  # updates per epoch

MAKERS: dict[str, Callable[[], Trigger]] = {
    "iterations": lambda: IntervalTrigger(3, "iteration"),
    "iterations between limits": lambda: IntervalTrigger(2, "iteration", after=4, before=15),
    "epochs": lambda: IntervalTrigger(1, "epoch"),
    "fractions of epochs": lambda: IntervalTrigger(0.3, "epoch"),
    "samples": lambda: IntervalTrigger(10, "sample"),
    "iterations up to a limit": lambda: LimitTrigger(9, "iteration"),
    "time up to a limit": lambda: LimitTrigger(12.5, "second"),
    "time": lambda: TimeTrigger(2.5),
    "points": lambda: ManualScheduleTrigger([2, 3, 11], "iteration"),
    "points in epochs": lambda: ManualScheduleTrigger([0.5, 1, 2.55], "epoch"),
    "once": lambda: OnceTrigger(),
    "least value": lambda: MinValueTrigger("loss", (2, "iteration")),
    "greatest value": lambda: MaxValueTrigger("loss", (0.5, "epoch")),
    "value nearest to 0": lambda: BestValueTrigger("loss", lambda best, new: abs(new) < abs(best), (3, "iteration")),
    "early stopping": lambda: EarlyStoppingTrigger((2, "iteration"), "loss", 2, min_delta=0.5, max_trigger="4ep"),
    "early stopping by time": lambda: EarlyStoppingTrigger("2sec", "loss", 1, "max", max_trigger=None),
    "threshold": lambda: ThresholdTrigger("loss", -1.5, "min", (2, "iteration")),
    "function": lambda: FunctionTrigger(lambda number: number > 2, [3], trigger=(4, "iteration")),
    "or": lambda: IntervalTrigger(4, "iteration") | TimeTrigger(3) | (lambda trainer: False),
    "and": lambda: IntervalTrigger(2, "iteration") & IntervalTrigger(3, "iteration"),
    "nested": lambda: (
        MinValueTrigger("loss", IntervalTrigger(2, "iteration") | ManualScheduleTrigger([3, 5], "iteration"))
        | (OnceTrigger() & IntervalTrigger(3, "iteration"))
    ),
}


@dataclass
class Step:
    """What happens in one iteration."""

    updates: int
    seconds: float
    observed: dict[str, Any]


numbers = st.integers(-5, 5).map(float) | st.sampled_from([math.nan, math.inf])
observations = st.one_of(
    st.just({}),
    st.builds(lambda value: {"loss": value}, numbers),
    st.builds(lambda value, weight: {"loss": (value, weight)}, numbers, st.integers(0, 3)),
)
steps = st.lists(
    st.builds(Step, st.sampled_from([1, 1, 1, 1, 0, 2, 5]), st.sampled_from([0.0, 0.5, 1.0, 6.0]), observations),
    min_size=1,
    max_size=25,
)


def advance(trainer: Any, step: Step) -> None:
    for _ in range(step.updates):
        trainer.updater.state.advance(samples=4)
    trainer.elapsed_time += step.seconds
    trainer.observation = step.observed


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=40)
@given(steps=steps, cuts=st.sets(st.integers(0, 25)), start=st.integers(0, 12))
def test_the_answers_are_those_of_an_uninterrupted_trigger(stand_in, name, steps, cuts, start) -> None:
    make = MAKERS[name]

    def answers(cuts: set[int]) -> list[bool]:
        trainer = stand_in(updates_per_epoch=LENGTH)
        for _ in range(start):
            trainer.updater.state.advance(samples=4)
        trigger = make()
        trigger.initialize(trainer)
        found = []
        for place, step in enumerate(steps):
            if place in cuts:
                state = json.loads(json.dumps(trigger.state_dict()))
                trigger = make()
                trigger.load_state_dict(state)
                trigger.initialize(trainer)
                assert json.dumps(trigger.state_dict()) == json.dumps(state)  # as text, because NaN is not itself
            advance(trainer, step)
            found.append(bool(trigger(trainer)))
        return found

    assert answers(cuts) == answers(set())


@pytest.mark.parametrize("name", [name for name in MAKERS if "limit" not in name and name != "once"])
@settings(max_examples=20)
@given(steps=steps)
def test_a_question_asked_again_at_the_same_place_is_answered_by_no(stand_in, name, steps) -> None:
    trainer = stand_in(updates_per_epoch=LENGTH)
    trigger = MAKERS[name]()
    trigger.initialize(trainer)
    for step in steps:
        advance(trainer, step)
        trigger(trainer)
        trainer.observation = {}
        assert not trigger(trainer) or getattr(trigger, "stopped", False) or name == "early stopping"


@pytest.mark.parametrize("name", MAKERS)
def test_what_another_trigger_has_saved_is_not_taken_for_its_own(stand_in, name) -> None:
    """An extension may get another trigger between two processes of a run; it must start, whatever was saved."""
    for other in MAKERS.values():
        donor = other()
        trainer = stand_in(updates_per_epoch=LENGTH)
        donor.initialize(trainer)
        for _ in range(5):
            advance(trainer, Step(1, 1.0, {"loss": 1.0}))
            donor(trainer)
        trigger = MAKERS[name]()
        trigger.load_state_dict(json.loads(json.dumps(donor.state_dict())))
        trigger.initialize(trainer)
        advance(trainer, Step(1, 1.0, {"loss": 1.0}))
        trigger(trainer)


@pytest.mark.parametrize("name", MAKERS)
def test_its_text_is_the_same_in_every_process(name) -> None:
    assert repr(MAKERS[name]()) == repr(MAKERS[name]())
    assert " at 0x" not in repr(MAKERS[name]())
