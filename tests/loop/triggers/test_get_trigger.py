from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ostinato.loop import IntervalTrigger, LimitTrigger, OnceTrigger, TimeTrigger, Trigger, from_counters, get_trigger
from ostinato.loop.triggers import decided_by, get_stop_trigger, never


@pytest.mark.parametrize(
    ("text", "kind", "period", "limit_unit"),
    [
        ("1000it", IntervalTrigger, 1000, "iteration"),
        ("1e3 ba", IntervalTrigger, 1000, "iteration"),
        ("0.5ep", IntervalTrigger, Fraction(1, 2), "epoch"),
        ("500sp", IntervalTrigger, 500, "sample"),
        ("500tok", IntervalTrigger, 500, "token"),
        ("30min", TimeTrigger, 1800, "second"),
        ("2.5sec", TimeTrigger, Fraction(5, 2), "second"),
    ],
)
def test_a_text_is_a_period_of_a_trigger_and_a_limit_of_a_stop_trigger(text, kind, period, limit_unit) -> None:
    trigger = get_trigger(text)
    assert isinstance(trigger, kind)
    assert trigger.period == period
    limit = get_stop_trigger(text)
    assert isinstance(limit, LimitTrigger)
    assert (limit.limit, limit.unit) == (period, limit_unit)


def test_the_same_period_may_be_written_as_a_text_a_tuple_or_an_object() -> None:
    written = ["1000it", (1000, "iteration"), [1000, "iteration"], (np.int64(1000), "iteration")]
    assert {repr(get_trigger(argument)) for argument in written} == {"IntervalTrigger(1000, 'iteration')"}
    assert {repr(get_stop_trigger(argument)) for argument in written} == {"LimitTrigger(1000, 'iteration')"}
    trigger = IntervalTrigger(1000, "iteration")
    assert get_trigger(trigger) is trigger
    assert get_stop_trigger(trigger) is trigger


@pytest.mark.parametrize("text", ["1.5it", "0it", "0ep", "0min", "0.5sp", "5iter", "1h", ""])
def test_a_text_that_is_no_period_is_refused(text) -> None:
    with pytest.raises(ValueError):
        get_trigger(text)
    with pytest.raises(ValueError):
        get_stop_trigger(text)


def test_where_the_answer_comes_from_is_known_of_every_trigger() -> None:
    def function(trainer):
        return True

    assert decided_by(IntervalTrigger(1, "iteration")) == "counters"
    assert decided_by(OnceTrigger()) == "counters"
    assert decided_by(LimitTrigger(1, "epoch")) == "counters"
    assert decided_by(LimitTrigger(1, "second")) == "rank0"
    assert decided_by(TimeTrigger(1)) == "rank0"
    assert decided_by(Trigger()) == "rank0"
    assert decided_by(function) == "rank0"
    assert decided_by(IntervalTrigger(1, "iteration") | TimeTrigger(1)) == "rank0"
    assert decided_by(IntervalTrigger(1, "iteration") & OnceTrigger()) == "counters"
    assert decided_by(from_counters(function)) == "counters"
    assert decided_by(never) == "counters"


def test_a_fraction_of_the_training_is_rounded_up_to_iterations() -> None:
    trigger = get_trigger("0.25dur", LimitTrigger(10, "iteration"))
    assert isinstance(trigger, IntervalTrigger)
    assert (trigger.period, trigger.unit) == (3, "iteration")


def test_a_fraction_of_a_training_time_is_a_time() -> None:
    trigger = get_trigger("0.5dur", LimitTrigger(60, "second"))
    assert isinstance(trigger, TimeTrigger)
    assert trigger.period == 30


def test_a_fraction_of_an_endless_training_is_refused() -> None:
    with pytest.raises(ValueError, match="the end of this training is not known"):
        get_trigger("0.1dur")


def test_a_list_of_limits_asks_all_of_them_every_time(stand_in) -> None:
    asked = []
    trigger = get_stop_trigger([(5, "iteration"), lambda t: bool(asked.append(1)), "2ep"])
    assert not trigger(stand_in(iteration=4))
    assert trigger(stand_in(iteration=5))
    assert trigger(stand_in(epoch=2))
    assert len(asked) == 3


@pytest.mark.parametrize("argument", [[], (), {"a": 1}, 1.5, b"10ba", 5, True, (1, "epoch", 2), {1, 2}])
def test_what_is_no_trigger_is_refused(argument) -> None:
    with pytest.raises(TypeError):
        get_trigger(argument)
    with pytest.raises(TypeError):
        get_stop_trigger(argument)
