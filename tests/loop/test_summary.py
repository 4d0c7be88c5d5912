from __future__ import annotations

import json
import logging
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.loop import DictSummary, Summary

weighted = st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 5)), min_size=1, max_size=30)


@given(values=weighted, cut=st.integers(0, 30), offset=st.sampled_from([0.0, 1e9]))
def test_any_split_merges_to_the_naive_result(values, cut, offset) -> None:
    parts = Summary(), Summary()
    for place, (value, weight) in enumerate(values):
        parts[place >= cut].add(value + offset, weight)
    restored = Summary()
    restored.load_state_dict(json.loads(json.dumps(parts[0].state_dict())))
    restored.merge(parts[1])
    mean, deviation = restored.make_statistics()
    if sum(weight for _, weight in values) == 0:
        assert math.isnan(mean)
        assert math.isnan(deviation)
        return
    x = np.array([value + offset for value, _ in values], np.longdouble)
    w = np.array([weight for _, weight in values], np.longdouble)
    expected = (w * x).sum() / w.sum()
    assert mean == pytest.approx(float(expected), rel=1e-12, abs=1e-9)
    expected_deviation = float(np.sqrt((w * (x - expected) ** 2).sum() / w.sum()))
    assert deviation == pytest.approx(expected_deviation, rel=1e-6, abs=1e-6 + 1e-9 * offset / 1e9 * 1e3)


def test_equal_values_have_no_deviation() -> None:
    summary = Summary()
    for _ in range(3):
        summary.add(0.1)
    assert summary.make_statistics() == (0.1, 0.0)


def test_nan_and_nothing_give_nan() -> None:
    summary = Summary()
    assert all(math.isnan(value) for value in (*summary.make_statistics(), summary.compute_mean()))
    summary.add(1.0)
    summary.add(math.nan)
    summary.add(2.0)
    assert all(math.isnan(value) for value in (*summary.make_statistics(), summary.compute_mean()))


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="from 0 up"):
        Summary().add(1.0, weight)


def test_what_is_no_number_is_left_out_and_told_once(caplog) -> None:
    summary = DictSummary()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            summary.add({"loss": 1.0, "picture": np.zeros(3), "text": "x"})
    assert summary.compute_mean() == {"loss": 1.0}
    assert len(caplog.records) == 2
    with pytest.raises(TypeError, match="weight of 'loss'"):
        summary.add({"loss": (1.0, "heavy")})


def test_dictionaries_merge_and_save() -> None:
    first, second = DictSummary(), DictSummary()
    first.add({"a": (2, 3)})
    second.add({"a": (6, 1), "b": 5})
    restored = DictSummary()
    restored.load_state_dict(json.loads(json.dumps(first.state_dict())))
    restored.merge(second)
    assert restored.compute_mean() == {"a": 3.0, "b": 5.0}
