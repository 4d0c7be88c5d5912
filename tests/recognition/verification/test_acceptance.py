"""True accepts at a rate of false accepts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.errors import ArgumentValueError, BadInputError
from ostinato.recognition.verification import Acceptance, acceptance_by_folds, cut_folds
from ostinato.recognition.verification.acceptance import threshold_at


def plain_threshold(different: np.ndarray, target: float) -> float:
    """The rule as it is written down."""
    grid = [0.001 * k for k in range(4000)]
    rates = [float(rate) for rate in (different[None, :] < np.array(grid)[:, None]).mean(axis=1)]
    if max(rates) < target:
        return 0.0
    j = max(k for k in range(4000) if rates[k] <= target)
    if j == 3999:
        return grid[j]
    return grid[j] + (grid[j + 1] - grid[j]) * (target - rates[j]) / (rates[j + 1] - rates[j])


@settings(max_examples=20)
@given(seed=st.integers(0, 500), target=st.sampled_from([0.001, 0.01, 0.1, 0.25, 0.5, 0.9]))
def test_the_threshold_is_that_of_the_rule(seed: int, target: float) -> None:
    different = np.random.default_rng(seed).uniform(0.5, 4.2, 40).clip(0, 4)
    rates = (different[None, :] < (0.001 * np.arange(4000))[:, None]).mean(axis=1)
    assert threshold_at(rates, target) == pytest.approx(plain_threshold(different, target), abs=1e-12)


def test_few_false_accepts_put_the_threshold_just_above_the_last_one_without() -> None:
    rates = np.zeros(4000)
    rates[2000:] = 0.5
    assert 1.999 < threshold_at(rates, 1e-3) < 2.0


def test_a_rate_that_is_never_reached_gives_zero_and_one_reached_at_the_end_gives_the_end() -> None:
    rates = np.zeros(4000)
    rates[-1] = 0.5
    assert threshold_at(rates, 0.9) == 0.0
    assert threshold_at(rates, 0.5) == pytest.approx(3.999)


def test_each_fold_is_judged_by_the_others() -> None:
    random = np.random.default_rng(0)
    same = np.arange(200) % 2 == 0
    distances = np.where(same, 0.9, 1.5) + random.normal(0, 0.4, 200)
    result = acceptance_by_folds(distances, same, cut_folds(200), 0.1)
    for fold in result.folds:
        inside = np.zeros(200, bool)
        inside[fold.fold.pairs] = True
        threshold = plain_threshold(distances[~inside & ~same], 0.1)
        assert fold.threshold == pytest.approx(threshold, abs=1e-12)
        assert fold.val == (distances[inside & same] < threshold).mean()
        assert fold.far == (distances[inside & ~same] < threshold).mean()
    assert result.tar == pytest.approx(np.mean([fold.val for fold in result.folds]))
    assert result.different_pairs == 100


def test_a_fold_without_different_pairs_is_named() -> None:
    same = np.array([True] * 5 + [False] * 5)
    with pytest.raises(BadInputError, match="Fold 1 of 2"):
        acceptance_by_folds(np.ones(10), same, cut_folds(10, 2))


@pytest.mark.parametrize("target", [0.0, 1.0, -0.1, float("nan")])
def test_a_rate_is_between_0_and_1(target: float) -> None:
    with pytest.raises(ArgumentValueError):
        acceptance_by_folds(np.ones(10), np.arange(10) % 2 == 0, cut_folds(10, 2), target)


@pytest.mark.parametrize(
    ("different", "target", "supported", "remark"),
    [
        (220, 1e-3, False, "220 different pairs are too few to say anything below 0.45 %"),
        (999, 1e-3, False, "999 different pairs are too few to say anything below 0.1 %"),
        (1000, 1e-3, True, "rests on about 1 of 1,000 different pairs: a rough figure"),
        (3000, 1e-3, True, "rests on about 3 of 3,000 different pairs: a rough figure"),
        (30_000, 1e-3, True, ""),
    ],
)
def test_it_says_what_it_rests_on(different: int, target: float, supported: bool, remark: str) -> None:
    acceptance = Acceptance(target, (), different)
    assert acceptance.is_supported is supported
    assert acceptance.remark == remark


def test_a_network_that_has_collapsed_is_not_taken_for_a_perfect_one() -> None:
    same = np.arange(400) % 2 == 0
    collapsed = acceptance_by_folds(np.full(400, 1e-6), same, cut_folds(400), 0.01)
    assert (collapsed.tar, collapsed.far, collapsed.holds) == (1.0, 1.0, False)
    assert collapsed.remark.startswith("means nothing")
    distances = np.where(same, 0.5, 1.5) + np.random.default_rng(0).normal(0, 0.3, 400)
    assert acceptance_by_folds(distances, same, cut_folds(400), 0.01).holds
