from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import StateError
from ostinato.swap.base_rate import BaseRate

RATE = BaseRate(5e-5)


def test_the_rate_is_the_configured_one_until_one_is_found_or_it_is_lowered() -> None:
    assert RATE.value == 5e-5
    assert RATE.describe() == ""
    assert RATE.with_found(1e-3).value == 1e-3
    assert RATE.lowered(0.5, 8, 6, "loss/b is nan").value == 2.5e-5
    assert RATE.with_found(1e-3).lowered(0.5, 8, 6, "loss/b is nan").lowered(0.1, 9, 6, "loss/a is inf").value == 5e-5


def test_a_search_after_recoveries_forgets_the_reductions_and_not_the_recoveries() -> None:
    rate = RATE.lowered(0.5, 8, 6, "loss/b is nan").with_found(1e-3)
    assert rate.value == 1e-3
    assert len(rate.recoveries) == 1


def test_it_says_where_it_comes_from() -> None:
    assert RATE.with_found(1e-3).describe() == "found by the search"
    assert RATE.lowered(0.5, 8, 6, "x").describe() == "lowered to 0.5 of 5e-05 by recovery"
    both = RATE.with_found(1e-3).lowered(0.5, 8, 6, "x")
    assert both.describe() == "found by the search (0.001), lowered to 0.5 of that by recovery"
    assert str(both.recoveries[0]) == "iteration 8 (x), back to 6 with the learning rate 0.0005"


def test_asking_for_the_same_rate_keeps_it_and_for_another_one_wins() -> None:
    rate = RATE.with_found(1e-3).lowered(0.5, 8, 6, "loss/b is nan")
    assert rate.asked(5e-5) is rate
    asked = rate.asked(3e-5)
    assert asked.value == 3e-5
    assert asked.recoveries == rate.recoveries


_RATES = st.floats(1e-10, 100.0)


@given(_RATES, st.none() | _RATES, st.lists(st.tuples(st.floats(0.01, 0.99), st.integers(0, 10**9)), max_size=5))
def test_it_is_saved_and_loaded_exactly(configured: float, found: float | None, recoveries: list[Any]) -> None:
    rate = BaseRate(configured)
    if found is not None:
        rate = rate.with_found(found)
    for factor, iteration in recoveries:
        rate = rate.lowered(factor, iteration, iteration // 2, "loss/b is nan")
    assert BaseRate.from_state(json.loads(json.dumps(rate.state_dict()))) == rate


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"configured": "fast"},
        {"configured": 0.0},
        {"found": float("nan")},
        {"factor": float("inf")},
        {"recoveries": [{}]},
        {"recoveries": None},
    ],
)
def test_a_state_that_holds_no_rate_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(StateError, match="saved learning rate cannot be used"):
        BaseRate.from_state({**RATE.state_dict(), **change})


def test_a_state_that_lacks_a_part_is_refused() -> None:
    for name in RATE.state_dict():
        state = RATE.state_dict()
        del state[name]
        with pytest.raises(StateError):
            BaseRate.from_state(state)
