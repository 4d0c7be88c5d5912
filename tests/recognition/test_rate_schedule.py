from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.config import RecognitionOptions, read_options
from ostinato.errors import ArgumentValueError
from ostinato.recognition.rate_schedule import RateSchedule, scaled_rate, schedule_from, updates_of


def _options(*overrides: str) -> RecognitionOptions:
    return read_options(RecognitionOptions, None, overrides).options


def test_a_warm_up_starts_low_and_reaches_the_full_rate_in_its_last_update() -> None:
    schedule = RateSchedule(0.4, 25, warm_up=4)
    assert [schedule(update) for update in range(1, 5)] == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_the_last_update_of_a_polynomial_run_still_moves_something() -> None:
    schedule = RateSchedule(0.1, 20)
    assert schedule(1) == pytest.approx(0.1)
    assert schedule(20) == pytest.approx(0.1 / 20)
    assert schedule(21) == 0.0


@given(
    total=st.integers(1, 200),
    warm_up=st.integers(-5, 250),
    power=st.floats(0.5, 3.0),
    kind=st.sampled_from(["polynomial", "multistep", "constant"]),
    starts_full=st.booleans(),
)
def test_a_rate_lies_between_nothing_and_the_full_rate_and_never_rises_after_the_warm_up(
    total: int, warm_up: int, power: float, kind: Any, starts_full: bool
) -> None:
    schedule = RateSchedule(0.3, total, kind, warm_up, power, (3, 50), starts_full=starts_full)
    rates = [schedule(update) for update in range(1, total + 20)]
    assert all(0 <= rate <= 0.3 for rate in rates)
    after = rates[max(0, warm_up) :]
    assert all(later <= earlier for earlier, later in pairwise(after))


@pytest.mark.parametrize(
    "arguments",
    [
        {"base": 0.0},
        {"base": float("nan")},
        {"total": 0},
        {"kind": "cosine"},
        {"power": 0.0},
        {"factor": 1.5},
        {"milestones": (5, 5)},
        {"milestones": (0, 5)},
    ],
)
def test_values_out_of_range_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentValueError):
        RateSchedule(**{"base": 0.1, "total": 10, **arguments})


def test_updates_are_counted_from_one() -> None:
    with pytest.raises(ArgumentValueError, match="counted from 1"):
        RateSchedule(0.1, 10)(0)


def test_linear_scaling_follows_the_batch_and_the_accumulation() -> None:
    assert scaled_rate(_options("batch_size=128")) == 0.1
    scaled = ["linear_scaling=true", "linear_scaling_batch=1024", "batch_size=128"]
    assert scaled_rate(_options(*scaled)) == pytest.approx(0.0125)
    assert scaled_rate(_options(*scaled, "accumulation=4")) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("passes", "images", "per_update", "updates"),
    [(2, 200, 40, 10), (0.1, 30, 3, 1), (1, 41, 40, 2), (0, 100, 10, 0), (1.5, 10, 10, 2), (0.3, 1000, 100, 3)],
)
def test_a_length_in_passes_becomes_the_updates_that_it_begins(
    passes: float, images: int, per_update: int, updates: int
) -> None:
    assert updates_of(passes, images, per_update) == updates


def test_the_schedule_of_options_takes_its_lengths_from_the_data() -> None:
    options = _options("batch_size=10", "accumulation=2", "epochs=4", "warmup_epochs=1", "learning_rate=0.2")
    schedule, total = schedule_from(options, 200)
    assert (total, schedule.total, schedule.warm_up, schedule.base) == (40, 40, 10, 0.2)


def test_a_number_of_iterations_wins_over_epochs() -> None:
    assert schedule_from(_options("batch_size=10", "iterations=7"), 200)[1] == 7


def test_milestones_are_passes_or_updates() -> None:
    multistep = ["batch_size=10", "schedule=multistep", "milestones=1, 2.5"]
    assert schedule_from(_options(*multistep), 200)[0].milestones == (20, 50)
    multistep[2] = "milestones=100,150"
    assert schedule_from(_options(*multistep, "milestone_unit=iteration"), 200)[0].milestones == (100, 150)
