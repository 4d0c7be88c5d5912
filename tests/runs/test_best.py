from __future__ import annotations

import math

import pytest

from ostinato.runs import BestBar, judge

NAN, INF = math.nan, math.inf


def _walk(averages: list[float | None], *, maximize: bool = False) -> list[float]:
    bar, best = BestBar(), []
    for average in averages:
        bar, is_best = judge(bar, average, 10, "", maximize=maximize)
        if is_best:
            assert average is not None
            best.append(average)
    return best


def test_a_value_that_is_no_number_never_wins_and_never_blocks() -> None:
    assert _walk([NAN, 3, 2, NAN, INF, 1]) == [3, 2, 1]
    assert _walk([NAN, 1, 2, NAN, -INF, 3], maximize=True) == [1, 2, 3]
    assert _walk([-INF, 3, None, 2]) == [3, 2]


def test_equal_is_not_better() -> None:
    assert _walk([2, 2, 1, 1]) == [2, 1]


def test_negative_losses_are_losses() -> None:
    assert _walk([0.5, -0.2, 0.1, -0.3]) == [0.5, -0.2, -0.3]


def test_a_mean_over_too_few_iterations_sets_no_bar() -> None:
    bar, is_best = judge(BestBar(0.5), 0.1, 1, "", minimum_count=10)
    assert (bar, is_best) == (BestBar(0.5), False)


def test_no_observation_at_all_changes_nothing() -> None:
    assert judge(BestBar(0.5), None, 0, "") == (BestBar(0.5), False)


def test_another_loss_definition_starts_a_new_bar() -> None:
    assert judge(BestBar(0.1, "mse"), 0.9, 10, "ssim") == (BestBar(0.9, "ssim"), True)
    assert judge(BestBar(0.1, "mse"), NAN, 10, "ssim") == (BestBar(None, "ssim"), False)


@pytest.mark.parametrize("resume_after", range(6))
def test_going_on_from_a_stored_bar_is_the_same(resume_after: int) -> None:
    averages = [NAN, 3, 2, NAN, INF, 1]
    bar, best = BestBar(), []
    for index, average in enumerate(averages):
        if index == resume_after:
            bar = BestBar(bar.lowest, bar.definition)
        bar, is_best = judge(bar, average, 10, "")
        best += [average] if is_best else []
    assert best == [3, 2, 1]
