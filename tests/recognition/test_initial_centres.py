"""First values of centres depend on seed and class alone."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.recognition import initial_centres
from ostinato.recognition.initial_centres import fill_initial_centres


def rows(first: int, count: int, width: int = 7, seed: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    table = torch.full((count, width), math.nan, dtype=dtype)
    fill_initial_centres(table, first, seed)
    return table


@settings(max_examples=30)
@given(first=st.integers(0, 2**40), count=st.integers(0, 50), cut=st.integers(0, 50))
def test_any_cut_of_the_rows_has_the_same_values(first: int, count: int, cut: int) -> None:
    cut = min(cut, count)
    whole = rows(first, count)
    assert torch.equal(whole, torch.cat([rows(first, cut), rows(first + cut, count - cut)]))


def test_it_does_not_matter_how_many_are_made_at_once(monkeypatch) -> None:
    whole = rows(5, 40)
    monkeypatch.setattr(initial_centres, "_NUMBERS_AT_ONCE", 24)
    assert torch.equal(rows(5, 40), whole)


def test_values_are_normal_with_deviation_one_hundredth() -> None:
    table = rows(0, 2000, 64, dtype=torch.float64)
    assert abs(table.mean()) < 5 * 0.01 / math.sqrt(table.numel())
    assert abs(table.std() - 0.01) < 1e-4
    assert abs((table / 0.01).pow(4).mean() - 3) < 0.1
    assert len(torch.unique(table, dim=0)) == 2000
    assert not torch.equal(table, rows(0, 2000, 64, seed=4, dtype=torch.float64))
    torch.testing.assert_close(rows(0, 10, 64), table[:10].float())
