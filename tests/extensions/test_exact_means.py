from __future__ import annotations

import logging
import math
import pickle
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.extensions.exact_means import ExactMeans

values = st.lists(
    st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([0, 1, 2.5, 8, 1e-3])), min_size=1
)


@given(values, st.randoms(use_true_random=False), st.integers(1, 4))
def test_the_bits_of_a_mean_depend_neither_on_the_order_nor_on_the_parts(pairs, draw, number_of_parts) -> None:
    straight = ExactMeans()
    for pair in pairs:
        straight.add({"x": pair})
    parts = [ExactMeans() for _ in range(number_of_parts)]
    shuffled = list(pairs)
    draw.shuffle(shuffled)
    for pair in shuffled:
        draw.choice(parts).add({"x": pair})
    total = ExactMeans()
    for part in parts:
        total.add_sums(pickle.loads(pickle.dumps(part.sums())))
    weight = sum(Fraction(w) for _, w in pairs)
    mean = straight.compute()["x"]
    if weight == 0:
        assert math.isnan(mean)
        assert math.isnan(total.compute()["x"])
    else:
        assert mean == total.compute()["x"] == float(sum(Fraction(v) * Fraction(w) for v, w in pairs) / weight)


@pytest.mark.parametrize(
    ("pairs", "mean"),
    [
        ([(1.0, 1), (math.nan, 1)], math.nan),
        ([(1.0, 1), (math.nan, 0)], 1.0),
        ([(math.inf, 2), (1.0, 1)], math.inf),
        ([(-math.inf, 1)], -math.inf),
        ([(math.inf, 1), (-math.inf, 1)], math.nan),
        ([(5.0, 0)], math.nan),
    ],
)
def test_what_is_no_finite_number_stays_visible(pairs, mean) -> None:
    means = ExactMeans()
    for pair in pairs:
        means.add({"x": pair})
    found = means.compute()["x"]
    assert found == mean or (math.isnan(found) and math.isnan(mean))


def test_tensors_wait_and_plain_values_have_the_weight_given() -> None:
    means = ExactMeans()
    for number in range(600):
        means.add({"x": torch.tensor(float(number)), "y": (torch.tensor(2), torch.tensor(0.5)), "z": number}, weight=3)
    assert means.compute() == {"x": 299.5, "y": 2.0, "z": 299.5}


def test_what_is_no_number_is_left_out_with_one_warning(caplog) -> None:
    means = ExactMeans()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            means.add({"text": "a", "many": torch.zeros(2), "x": 1})
    assert means.compute() == {"x": 1.0}
    assert len(caplog.records) == 2


@pytest.mark.parametrize(("weight", "error"), [("a", TypeError), (torch.ones(2), TypeError), (-1, ValueError)])
def test_a_weight_must_be_a_number_from_0_up(weight: Any, error: type[Exception]) -> None:
    def mean() -> dict[str, float]:
        means = ExactMeans()
        means.add({"x": (1.0, weight)})
        return means.compute()

    with pytest.raises(error, match="weight of 'x' must be a number"):
        mean()
