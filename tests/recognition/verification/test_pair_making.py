"""Pairs made of a folder of people."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.errors import ArgumentValueError, BadInputError
from ostinato.recognition.verification.pair_making import MadePairs, _unordered, make_pairs


def people_of(made: MadePairs, counts: list[int]) -> np.ndarray:
    return np.repeat(np.arange(len(counts)), counts)[made.pairs]


@settings(max_examples=60)
@given(
    counts=st.lists(st.integers(1, 12), min_size=2, max_size=60),
    pairs=st.integers(20, 400),
    folds=st.integers(1, 10),
    seed=st.integers(0, 100),
)
def test_pairs_are_true_balanced_and_different_in_every_fold(
    counts: list[int], pairs: int, folds: int, seed: int
) -> None:
    try:
        made = make_pairs(counts, pairs=pairs, folds=folds, seed=seed)
    except BadInputError:
        own = sum(count * (count - 1) // 2 for count in counts)
        mixed = (sum(counts) ** 2 - sum(count**2 for count in counts)) // 2
        assert own < folds or mixed < folds
        return
    people = people_of(made, counts)
    assert (made.same == (people[:, 0] == people[:, 1])).all()
    assert len({frozenset(pair) for pair in made.pairs.tolist()}) == len(made.pairs)
    assert (made.pairs[:, 0] != made.pairs[:, 1]).all()
    assert len(made.same) % folds == 0
    assert len(made.same) <= pairs
    per_fold = made.same.reshape(folds, -1)
    assert (per_fold.sum(axis=1) * 2 == per_fold.shape[1]).all()
    if made.folds_are_disjoint:
        blocks = [set(block.ravel().tolist()) for block in people.reshape(folds, -1, 2)]
        assert sum(map(len, blocks)) == len(set.union(*blocks))
    again = make_pairs(counts, pairs=pairs, folds=folds, seed=seed)
    assert again.pairs.tolist() == made.pairs.tolist()


def test_twenty_people_give_ten_folds_of_their_own_and_nineteen_do_not() -> None:
    assert make_pairs([4] * 20).folds_are_disjoint
    assert not make_pairs([4] * 19).folds_are_disjoint
    assert make_pairs([4] * 19, folds=9).folds_are_disjoint
    assert not make_pairs([4] * 20, folds=1).folds_are_disjoint  # there is nothing to be disjoint from


def test_people_count_alike() -> None:
    counts = [10] * 40
    made = make_pairs(counts, pairs=800)
    taken = np.bincount(people_of(made, counts).ravel(), minlength=40)
    assert taken.min() > 0
    assert taken.max() < 3 * taken.min()


def test_a_person_with_very_many_pictures_does_not_take_over() -> None:
    counts = [3000] + [10] * 39
    made = make_pairs(counts, pairs=800)
    people = people_of(made, counts)
    assert (people == 0).any(axis=1).mean() < 0.2
    assert made.folds_are_disjoint


def test_another_seed_draws_other_pairs() -> None:
    assert make_pairs([6] * 30, seed=1).pairs.tolist() != make_pairs([6] * 30, seed=2).pairs.tolist()


def test_no_more_pairs_than_asked_for() -> None:
    assert len(make_pairs([10] * 40, pairs=205).same) == 200


def test_people_with_one_picture_each_make_no_pairs() -> None:
    with pytest.raises(BadInputError, match="0 pairs of the same person and 435 pairs of different people, too few"):
        make_pairs([1] * 30)
    with pytest.raises(BadInputError, match="of 1 people"):
        make_pairs([30])


def test_folds_without_pairs_make_no_sense() -> None:
    for pairs, folds in ((19, 10), (100, 0)):
        with pytest.raises(ArgumentValueError):
            make_pairs([5] * 30, pairs=pairs, folds=folds)


def test_pairs_are_numbered_without_gaps() -> None:
    pairs = [_unordered(number) for number in range(4950)]
    assert sorted(pairs) == [(low, high) for low in range(100) for high in range(low + 1, 100)]
    assert _unordered(2**60) == (2**60 - 1518500250 * 1518500249 // 2, 1518500250)
