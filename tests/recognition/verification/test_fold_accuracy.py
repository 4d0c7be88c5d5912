"""Accuracy by folds, against the same computed plainly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import KFold

from ostinato.recognition.verification import accuracy_by_folds, cut_folds


def some_pairs(seed: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances on a coarse grid, so that some lie exactly on a threshold."""
    random = np.random.default_rng(seed)
    same = random.random(pairs) < 0.5
    return np.round(np.where(same, 0.8, 1.6) + random.normal(0, 0.6, pairs), 2).clip(0, 4), same


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), pairs=st.integers(10, 60), folds=st.integers(2, 10))
def test_it_is_the_plain_computation(seed: int, pairs: int, folds: int) -> None:
    distances, same = some_pairs(seed, pairs)
    result = accuracy_by_folds(distances, same, cut_folds(pairs, folds))
    said_same = distances[None, :] < 0.01 * np.arange(400)[:, None]  # (thresholds, pairs)
    expected, curves = [], []
    for (train, test), outcome in zip(KFold(folds).split(distances), result.outcomes, strict=True):
        scores = (said_same[:, train] == same[train]).mean(axis=1)
        best = int(scores.argmax())
        assert outcome.threshold_index == best
        assert outcome.train_accuracy == pytest.approx(scores[best], abs=1e-12)
        expected.append((said_same[best, test] == same[test]).mean())
        curves.append((said_same[:, test] & same[test]).sum(axis=1) / max(same[test].sum(), 1))
    assert result.mean == pytest.approx(np.mean(expected), abs=1e-12)
    assert result.std == pytest.approx(np.std(expected), abs=1e-12)
    assert result.tpr == pytest.approx(np.mean(curves, axis=0), abs=1e-12)


def test_a_distance_on_the_threshold_is_not_accepted() -> None:
    distances, same = np.array([0.5, 0.5]), np.array([True, False])
    result = accuracy_by_folds(distances, same, cut_folds(2, 1))
    assert result.tpr[50] == 0
    assert result.tpr[51] == 1


def test_one_fold_is_its_own_training_set() -> None:
    distances, same = np.array([0.1, 0.2, 0.9, 1.0]), np.array([True, True, False, False])
    (outcome,) = accuracy_by_folds(distances, same, cut_folds(4, 1)).outcomes
    assert (outcome.train_accuracy, outcome.accuracy) == (1.0, 1.0)
    assert outcome.threshold == pytest.approx(0.21)  # the first of the best
