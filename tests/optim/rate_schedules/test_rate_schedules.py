"""Rate schedules: values, errors, purity, and going on from what was saved."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.errors import ArgumentValueError, ContractError
from ostinato.optim.rate_schedules import RateSchedule, create_schedule, schedule_from_state

ARGUMENTS: dict[str, dict[str, Any]] = {
    "factor": {"step": 4, "factor": 0.5},
    "multifactor": {"step": [3, 8, 15], "factor": 0.1},
    "poly": {"max_update": 20},
    "cosine": {"max_update": 20},
}


def made(name: str, **more: Any) -> RateSchedule:
    return create_schedule(name, **{**ARGUMENTS[name], "base_lr": 1.0, **more})


def test_a_factor_takes_effect_after_its_step_and_stops_at_the_floor() -> None:
    assert [made("factor")(n) for n in (0, 4, 5, 8, 9)] == [1.0, 1.0, 0.5, 0.5, 0.25]
    assert made("factor", stop_factor_lr=0.3)(100) == 0.3


def test_listed_updates_take_effect_one_later() -> None:
    assert [made("multifactor")(n) for n in (3, 4, 8, 9, 16)] == pytest.approx([1.0, 0.1, 0.1, 0.01, 0.001])


def test_a_curve_ends_at_its_last_rate_and_stays_there() -> None:
    for name in ("poly", "cosine"):
        assert made(name, final_lr=0.25)(20) == made(name, final_lr=0.25)(10**6) == 0.25
    assert made("poly", pwr=1)(5) == pytest.approx(0.75)
    assert made("cosine")(10) == pytest.approx(0.5)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_warm_up_rises_to_the_base_rate_or_stays(name: str) -> None:
    linear = made(name, warmup_steps=4, warmup_begin_lr=0.2)
    assert [linear(n) for n in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    constant = made(name, warmup_steps=4, warmup_begin_lr=0.2, warmup_mode="constant")
    assert [constant(n) for n in range(4)] == [0.2] * 4


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_base_rate_assigned_later_is_as_good_as_one_given_at_first(name: str) -> None:
    schedule = made(name, warmup_steps=5)
    schedule.base_lr = 0.3
    assert [schedule(n) for n in range(30)] == [made(name, warmup_steps=5, base_lr=0.3)(n) for n in range(30)]


@settings(deadline=None)
@given(st.sampled_from(sorted(ARGUMENTS)), st.lists(st.integers(0, 40), max_size=20))
def test_a_rate_depends_on_its_update_alone(name: str, order: list[int]) -> None:
    schedule = made(name, warmup_steps=2)
    assert [schedule(n) for n in order] == [made(name, warmup_steps=2)(n) for n in order]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_saved_schedule_goes_on_with_the_rate_it_had(name: str) -> None:
    schedule = made(name, warmup_steps=3, warmup_begin_lr=0.1)
    schedule.base_lr = 0.7
    again = schedule_from_state(schedule.state_dict())
    assert type(again) is type(schedule)
    assert [again(n) for n in range(30)] == [schedule(n) for n in range(30)]
    assert repr(again) == repr(schedule)


def test_a_state_of_another_kind_is_refused_and_changes_nothing() -> None:
    schedule = made("factor")
    with pytest.raises(ArgumentValueError, match="factor schedule cannot continue from a saved 'poly'"):
        schedule.load_state_dict(made("poly").state_dict())
    with pytest.raises(ArgumentValueError, match="format 2"):
        schedule.load_state_dict({**schedule.state_dict(), "format": 2})
    wrong = schedule.state_dict()
    wrong["arguments"]["factor"] = 2
    with pytest.raises(ArgumentValueError, match="grow without end"):
        schedule.load_state_dict(wrong)
    assert schedule(9) == 0.25


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("factor", {"warmup_begin_lr": 2.0}),
        ("factor", {"base_lr": math.inf}),
        ("factor", {"base_lr": math.nan}),
        ("factor", {"warmup_steps": -1}),
        ("factor", {"warmup_mode": "cubic"}),
        ("factor", {"step": 0}),
        ("factor", {"factor": 1.5}),
        ("multifactor", {"factor": 1.5}),
        ("multifactor", {"step": [3, 3]}),
        ("multifactor", {"step": [0, 3]}),
        ("poly", {"max_update": 0}),
        ("cosine", {"max_update": 5, "warmup_steps": 5}),
    ],
)
def test_values_out_of_range_are_refused(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        made(name, **arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("factor", {"warmup_steps": 1.0}),
        ("factor", {"step": 2.5}),
        ("multifactor", {"step": (3, 8)}),
        ("multifactor", {"step": []}),
        ("multifactor", {"step": [3.0]}),
        ("poly", {"max_update": 20.0}),
        ("cosine", {"max_update": True}),
    ],
)
def test_updates_that_are_no_whole_numbers_are_refused_as_gluon_does(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ContractError) as caught:
        made(name, **arguments)
    assert isinstance(caught.value, AssertionError)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ArgumentValueError, match="Did you mean 'cosine'"):
        create_schedule("Cosin", max_update=3)
    with pytest.raises(ArgumentValueError, match="Known are: cosine, factor"):
        create_schedule("xyz")
