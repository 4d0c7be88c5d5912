from __future__ import annotations

import pytest

from ostinato.loop import IntervalTrigger, LimitTrigger, TimeTrigger, get_trigger
from ostinato.loop.triggers import get_stop_trigger


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


@pytest.mark.parametrize("argument", [[], (), {"a": 1}, 1.5, b"10ba"])
def test_what_is_no_trigger_is_refused(argument) -> None:
    with pytest.raises(TypeError):
        get_trigger(argument)
    with pytest.raises(TypeError):
        get_stop_trigger(argument)
