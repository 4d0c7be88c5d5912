from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.extensions.observed_values import HeldNumbers

DTYPES = [torch.float32, torch.float64, torch.int64, torch.bfloat16]


@given(st.lists(st.lists(st.tuples(st.integers(-8, 8), st.sampled_from([None, *DTYPES])), max_size=6), max_size=5))
def test_numbers_come_back_in_their_order_whatever_they_were_made_of(rows) -> None:
    values = [[v if dtype is None else torch.tensor(v, dtype=dtype) for v, dtype in row] for row in rows]
    held = [HeldNumbers(row) for row in values]
    assert HeldNumbers.read(held) == [[float(v) for v, _ in row] for row in rows]
    assert [len(row) for row in held] == [len(row) for row in rows]


def test_what_changes_later_is_held_as_it_was() -> None:
    parameter = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    held = HeldNumbers([parameter.detach()[1], torch.ones(1, 1)])
    with torch.no_grad():
        parameter.mul_(10)
    assert HeldNumbers.read([held]) == [[2.0, 1.0]]


def test_all_of_one_type_are_fetched_in_one_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [HeldNumbers([torch.tensor(float(n)), n, torch.tensor(n)]) for n in range(10)]
    fetches = []
    real = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: fetches.append(1) or real(self))
    assert HeldNumbers.read(held)[9] == [9.0, 9.0, 9.0]
    assert len(fetches) == 2


def test_not_a_number_and_infinities_stay_what_they_are() -> None:
    first, second, third = HeldNumbers.read([HeldNumbers([torch.tensor(math.nan), math.inf, torch.tensor(-math.inf)])])[
        0
    ]
    assert math.isnan(first)
    assert (second, third) == (math.inf, -math.inf)
