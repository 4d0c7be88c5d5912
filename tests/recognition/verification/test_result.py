"""Verification of embeddings."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ostinato.errors import ArgumentValueError, BadInputError, NonFiniteError
from ostinato.recognition.verification import verify
from ostinato.recognition.verification.result import PairMeasurements, measure


def some_embeddings(pairs: int = 60, noise: float = 0.7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    people = random.normal(size=(pairs, 2, 16))
    same = np.arange(pairs) % 3 != 0
    people[same, 1] = people[same, 0]
    plain = (people + noise * random.normal(size=people.shape)).reshape(-1, 16)
    return plain, plain + 0.1 * random.normal(size=plain.shape), same


def test_numbers_of_the_whole() -> None:
    plain, mirrored, same = some_embeddings()
    result = verify(plain, mirrored, same, far_targets=(0.1, 0.5))
    assert (result.pairs, result.same_pairs, result.different_pairs) == (60, 40, 20)
    norms = [np.sqrt((row**2).sum()) for row in [*plain, *mirrored]]
    assert result.xnorm == pytest.approx(np.mean(norms))
    assert [acceptance.target for acceptance in result.acceptances] == [0.1, 0.5]
    assert 0.7 < result.accuracy.mean <= 1
    assert json.loads(json.dumps(result.to_dict()))["accuracy"] == result.accuracy.mean


def test_lengths_do_not_matter_to_accuracy_and_are_told() -> None:
    plain, mirrored, same = some_embeddings()
    one, other = verify(plain, mirrored, same), verify(plain * 8, mirrored * 8, same)
    assert other.accuracy.mean == one.accuracy.mean
    assert other.xnorm == pytest.approx(8 * one.xnorm)


def test_the_mirrored_picture_counts() -> None:
    plain, mirrored, same = some_embeddings()
    assert verify(plain, -plain + mirrored, same).to_dict() != verify(plain, mirrored, same).to_dict()


def test_distances_are_those_of_unit_vectors() -> None:
    measured = measure([[3.0, 0.0], [0.0, 5.0]], [[1.0, 0.0], [0.0, 1.0]], 1)
    assert measured.distances.tolist() == [2.0]
    assert measured.norms.tolist() == [[3.0, 1.0], [5.0, 1.0]]


def test_zero_embeddings_are_counted_and_stay_zero() -> None:
    plain, mirrored, same = some_embeddings()
    plain[4] = mirrored[4] = 0
    mirrored[11] = -plain[11]
    result = verify(plain, mirrored, same)
    assert result.zero_embeddings == 2
    assert measure(plain, mirrored, 60).distances[2] == pytest.approx(1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_embeddings_that_are_not_finite_are_named(value: float) -> None:
    plain, mirrored, same = some_embeddings()
    plain[5, 3] = value
    mirrored[9, 0] = value
    with pytest.raises(NonFiniteError, match="2 of 120 embeddings are not finite: p5, p9") as caught:
        verify(plain, mirrored, same, names=[f"p{number}" for number in range(120)])
    assert caught.value.fields == {"kind": "embedding", "names": ["p5", "p9"], "iteration": None}


def test_if_all_are_not_finite_only_some_are_named() -> None:
    plain, mirrored, same = some_embeddings()
    with pytest.raises(NonFiniteError, match=r"120 of 120 .* 0, 1, 2, 3, 4 and others"):
        verify(plain * np.nan, mirrored, same)


def test_shapes_that_do_not_fit_and_too_few_pairs_are_refused() -> None:
    plain, mirrored, same = some_embeddings()
    for rows, flipped, truth in (
        (plain[:-1], mirrored[:-1], same),
        (plain, mirrored[:, :3], same),
        (plain[0], plain[0], same),
    ):
        with pytest.raises(ArgumentValueError, match="do not fit 60 pairs"):
            verify(rows, flipped, truth)
    with pytest.raises(BadInputError, match="9 pairs cannot be cut into 10 folds"):
        verify(plain[:18], mirrored[:18], same[:9])
    with pytest.raises(BadInputError, match="Fold 1 of 10"):
        verify(plain, mirrored, np.ones(60, bool))


def test_parts_are_joined_in_order() -> None:
    plain, mirrored, _ = some_embeddings()
    parts = [measure(plain[a:b], mirrored[a:b], (b - a) // 2) for a, b in ((0, 10), (10, 10), (10, 120))]
    joined, whole = PairMeasurements.joined(parts), measure(plain, mirrored, 60)
    for name in ("distances", "norms", "zero", "finite"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name))
