from __future__ import annotations

import json
import logging
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.extensions import interval_means
from ostinato.extensions.interval_means import IntervalMeans

numbers = st.floats(-100, 100, width=32)
weights = st.one_of(st.none(), st.integers(0, 50), st.floats(0, 50, width=32))
kinds = st.sampled_from(["number", "tensor", "both"])
observations = st.lists(st.dictionaries(st.sampled_from("abc"), st.tuples(numbers, weights, kinds)), max_size=12)


def observed(entry: tuple[float, Any, str]) -> Any:
    value, weight, kind = entry
    shown: Any = value if kind == "number" else torch.tensor(value)
    if weight is None:
        return shown
    return shown, (torch.tensor(weight) if kind == "both" else weight)


def naive(rows: list[dict[str, tuple[float, Any, str]]]) -> dict[str, float]:
    means = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        pairs = [(row[name][0], 1 if row[name][1] is None else row[name][1]) for row in rows if name in row]
        total = math.fsum(weight for _, weight in pairs)
        means[name] = math.fsum(value * weight for value, weight in pairs) / total if total > 0 else math.nan
    return means


@given(observations, st.integers(0, 12), st.booleans())
def test_means_equal_the_naive_ones_also_over_a_saved_state(rows, cut, small_blocks) -> None:
    means = IntervalMeans("test")
    with pytest.MonkeyPatch.context() as patch:
        if small_blocks:
            patch.setattr(interval_means, "_ROWS_IN_A_BLOCK", 2)
            patch.setattr(interval_means, "_MOST_VALUES", 5)
        for number, row in enumerate(rows):
            if number == cut:
                state = json.loads(json.dumps(means.state_dict()))
                means = IntervalMeans("test")
                means.load_state_dict(state)
            means.add({name: observed(entry) for name, entry in row.items()})
        found = means.compute()
    expected = naive(rows)
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True)
    means.clear()
    assert means.compute() == {}


def test_the_mean_of_many_float32_values_keeps_double_precision() -> None:
    means = IntervalMeans("test")
    for number in range(3000):
        means.add({"a": torch.tensor(1e6 + number % 2)})
    assert means.compute() == {"a": 1e6 + 0.5}


def test_nothing_waits_for_the_device_until_the_means_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []
    for method in ("item", "tolist", "cpu", "numpy", "__float__", "__bool__", "__int__"):
        real = getattr(torch.Tensor, method)

        def counting(self: torch.Tensor, *args: Any, real: Any = real, method: str = method, **kwargs: Any) -> Any:
            waits.append(method)
            return real(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, method, counting)
    means = IntervalMeans("test")
    for number in range(1000):
        means.add({"a": torch.tensor(number), "b": (torch.tensor(1.0), 2), "c": (torch.tensor(3.0), torch.tensor(4))})
    assert waits == []
    assert means.compute() == {"a": 499.5, "b": 1.0, "c": 3.0}
    assert waits != []


def test_what_changes_later_counts_as_it_was() -> None:
    means = IntervalMeans("test")
    value = torch.tensor(1.0)
    means.add({"a": value})
    value.fill_(5.0)
    means.add({"a": value})
    assert means.compute() == {"a": 3.0}


def test_not_a_number_shows_in_the_mean_unless_its_weight_is_zero() -> None:
    means = IntervalMeans("test")
    means.add({"a": torch.tensor(math.nan), "b": (torch.tensor(math.nan), 0), "c": (1.0, 0)})
    means.add({"a": torch.tensor(1.0), "b": torch.tensor(2.0)})
    found = means.compute()
    assert math.isnan(found["a"])
    assert found["b"] == 2.0
    assert math.isnan(found["c"])


def test_only_the_keys_that_were_asked_for() -> None:
    means = IntervalMeans("test", ["b", "z"])
    means.add({"a": 1.0, "b": 2.0})
    assert means.compute() == {"b": 2.0}


def test_what_is_no_number_is_left_out_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    means = IntervalMeans("Someone")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            means.add({"text": "a", "picture": torch.zeros(3), "a": 1.0})
    assert means.compute() == {"a": 1.0}
    assert [record.getMessage() for record in caplog.records] == [
        "Someone: 'text' is left out, str is not a number",
        "Someone: 'picture' is left out, Tensor is not a number",
    ]


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf, torch.tensor(-1.0)])
def test_a_bad_weight_is_refused(weight) -> None:
    means = IntervalMeans("test")
    with pytest.raises(ValueError, match=r"The weight of 'a' must be a finite number from 0 up, not -?(1|nan|inf)"):
        means.add({"a": (torch.tensor(1.0), weight)}) or means.compute()


def test_a_weight_that_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match="The weight of 'a' must be a number, not 'x'"):
        IntervalMeans("test").add({"a": (1.0, "x")})
