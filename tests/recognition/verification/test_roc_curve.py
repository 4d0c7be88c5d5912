"""Curves, against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.errors import ArgumentValueError
from ostinato.recognition.verification import roc_curve


@settings(max_examples=25)
@given(
    scored=st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=2, max_size=60),
    drop=st.booleans(),
)
def test_points_are_those_of_scikit_learn(scored: list[tuple[int, bool]], drop: bool) -> None:
    scores = np.array([score / 7 for score, _ in scored])
    same = np.array([truth for _, truth in scored])
    if same.all() or not same.any():
        with pytest.raises(ArgumentValueError, match="both kinds"):
            roc_curve(scores, same, drop_collinear=drop)
        return
    curve = roc_curve(scores, same, drop_collinear=drop)
    far, tar, thresholds = sklearn.metrics.roc_curve(same, scores, drop_intermediate=drop)
    assert curve.far == pytest.approx(far, abs=1e-12)
    assert curve.tar == pytest.approx(tar, abs=1e-12)
    assert curve.scores[1:] == pytest.approx(thresholds[1:], abs=1e-12)


@settings(max_examples=25)
@given(
    scored=st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=4, max_size=60),
    target=st.floats(1e-6, 1),
)
def test_the_nearest_point_is_found_from_high_to_low(scored: list[tuple[int, bool]], target: float) -> None:
    same = np.array([truth for _, truth in scored])
    if same.all() or not same.any():
        return
    curve = roc_curve(np.array([float(score) for score, _ in scored]), same)
    walk = list(zip(curve.far[::-1], curve.tar[::-1], strict=True))
    nearest = min(range(len(walk)), key=lambda place: (abs(walk[place][0] - target), place))
    assert curve.nearest(target) == walk[nearest]


def test_scores_that_are_not_finite_are_counted() -> None:
    with pytest.raises(ArgumentValueError, match="1 of 3 scores"):
        roc_curve(np.array([0.1, np.nan, 0.2]), np.array([True, False, True]))
