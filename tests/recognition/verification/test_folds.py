"""Cutting pairs into folds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import KFold

from ostinato.errors import ArgumentValueError, BadInputError
from ostinato.recognition.verification.folds import checked_folds, cut_folds


@settings(max_examples=25)
@given(pairs=st.integers(2, 200), folds=st.integers(2, 20))
def test_folds_are_those_of_the_established_tool(pairs: int, folds: int) -> None:
    if pairs < folds:
        with pytest.raises(BadInputError, match=f"cannot be cut into {folds} folds"):
            cut_folds(pairs, folds)
        return
    expected = [test.tolist() for _, test in KFold(folds).split(np.zeros(pairs))]
    assert [list(range(pairs))[fold.pairs] for fold in cut_folds(pairs, folds)] == expected


def test_one_fold_is_everything() -> None:
    (fold,) = cut_folds(7, 1)
    assert (fold.first, fold.count) == (0, 7)


def test_no_fold_makes_no_sense() -> None:
    with pytest.raises(ArgumentValueError):
        cut_folds(7, 0)


@pytest.mark.parametrize(("value", "missing"), [(True, "different"), (False, "same")])
def test_a_fold_without_one_of_the_kinds_is_named(value: bool, missing: str) -> None:
    same = np.arange(40) % 2 == 0
    checked_folds(same)
    same[8:12] = value
    with pytest.raises(BadInputError, match=r"Fold 3 of 10 \(pairs 9 to 12\)") as caught:
        checked_folds(same)
    assert caught.value.fields == {"fold": 3, "missing": missing}
