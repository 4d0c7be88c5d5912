from __future__ import annotations

import csv
import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import ArgumentValueError, StateError
from ostinato.optim.rate_finder import RateFinder, rate_table


def swept(losses: list[float], batches: int | None = None) -> RateFinder:
    finder = RateFinder(batches or len(losses))
    for loss in losses:
        finder.add(loss)
        if finder.is_over:
            break
    return finder


def test_the_rates_rise_in_equal_ratios_from_start_to_end() -> None:
    finder = RateFinder(3, start=1e-4, end=1e-1)
    used = []
    for loss in (3.0, 2.0, 1.0):
        used.append(finder.rate)
        finder.add(loss)
    assert used == pytest.approx([1e-4, 1e-3, 1e-2], rel=1e-12)
    assert [point.used for point in finder.points] == used
    assert [point.rate for point in finder.points] == pytest.approx([1e-3, 1e-2, 1e-1], rel=1e-12)
    assert finder.ended == "swept"
    assert finder.result() == pytest.approx(1e-2)
    assert finder.result("aggressive") == pytest.approx(2e-2)
    assert finder.result("extreme") == pytest.approx(4e-2)


def test_it_stops_when_the_smoothed_loss_is_four_times_the_lowest() -> None:
    finder = swept([1.0] * 50 + [1000.0] * 50)
    assert finder.ended == "diverged"
    assert len(finder.points) == 51
    assert finder.best is not None
    assert finder.best.smoothed == pytest.approx(1.0)


@pytest.mark.parametrize("first", [math.nan, math.inf, -math.inf])
def test_a_first_loss_that_is_no_number_finds_nothing(first: float) -> None:
    finder = swept([first, 1.0])
    assert (finder.ended, finder.best, finder.result(), finder.points) == ("not finite", None, None, [])


def test_a_later_loss_that_is_no_number_ends_the_sweep_and_what_was_found_counts() -> None:
    finder = swept([1.0 - i / 100 for i in range(60)] + [math.nan], 100)
    assert finder.ended == "not finite"
    assert len(finder.points) == 60
    assert finder.best is finder.points[-1]
    assert finder.result() == pytest.approx(finder.points[-1].rate / 10)


def test_an_infinite_loss_is_a_divergence() -> None:
    assert swept([1.0, 1.0, math.inf], 100).ended == "diverged"


def test_a_loss_that_only_rises_finds_nothing() -> None:
    finder = swept([1.0 + i / 10 for i in range(100)])
    assert finder.best is finder.points[0]
    assert finder.result("extreme") is None


def test_of_equal_losses_the_first_counts() -> None:
    finder = RateFinder(4)
    finder.add(1.0)
    assert finder.best is not None
    assert finder.best.batch == 1


def test_wrong_arguments_and_calls_are_refused() -> None:
    for settings in ({"batches": 0}, {"start": 0.0}, {"start": 1.0, "end": 0.5}, {"end": math.inf}):
        with pytest.raises(ArgumentValueError, match="makes no sense"):
            RateFinder(**settings)  # type: ignore[arg-type]
    finder = swept([1.0])
    with pytest.raises(StateError, match="has ended"):
        finder.add(1.0)
    with pytest.raises(ArgumentValueError, match="default, aggressive, extreme"):
        finder.result("brave")


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=60))
def test_whatever_the_losses_are_a_result_is_a_rate_of_the_sweep_or_none(losses: list[float]) -> None:
    finder = swept(losses)
    assert finder.is_over
    for strength in ("default", "aggressive", "extreme"):
        result = finder.result(strength)
        assert result is None or 1e-9 <= result <= finder.end / 2.5
    if finder.best is not None:
        assert math.isfinite(finder.best.smoothed)


@given(st.integers(1, 10_000))
def test_the_last_batch_stands_for_the_end_of_the_sweep(batches: int) -> None:
    finder = RateFinder(batches)
    assert finder._rate_after(batches) == pytest.approx(0.1, rel=1e-12)
    assert finder.rate == pytest.approx(1e-10, rel=1e-12)


def test_the_table_reads_back_exactly() -> None:
    finder = swept([0.5, 0.25, 1 / 3])
    rows = list(csv.DictReader(io.StringIO(rate_table(finder.points))))
    assert [int(row["batch"]) for row in rows] == [1, 2, 3]
    for row, point in zip(rows, finder.points, strict=True):
        assert float(row["rate_used"]) == point.used
        assert float(row["rate"]) == point.rate
        assert float(row["loss"]) == point.loss
        assert float(row["smoothed_loss"]) == point.smoothed
