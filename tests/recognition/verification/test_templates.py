"""Templates, against the protocol written out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import normalize

from ostinato.errors import ArgumentValueError, NonFiniteError
from ostinato.recognition.verification import pair_scores, template_embeddings


def test_it_is_the_plain_protocol() -> None:
    random = np.random.default_rng(0)
    plain, mirrored = random.normal(size=(2, 50, 6))
    templates, media = random.integers(0, 9, 50) * 7, random.integers(0, 5, 50)
    scores = random.random(50)
    rows = (plain + mirrored) * scores[:, None]
    expected = []
    for template in np.unique(templates):
        total = np.zeros(6)
        for medium in np.unique(media[templates == template]):
            total += rows[(templates == template) & (media == medium)].mean(axis=0)
        expected.append(total)
    ids, embeddings = template_embeddings(plain, mirrored, templates, media, scores)
    assert ids.tolist() == np.unique(templates).tolist()
    assert embeddings == pytest.approx(normalize(expected), abs=1e-12)
    pairs = np.array([[7, 14], [56, 0], [7, 7]])
    places = [[1, 2], [len(ids) - 1, 0], [1, 1]]
    assert pair_scores(ids, embeddings, pairs) == pytest.approx([embeddings[a] @ embeddings[b] for a, b in places])


def test_the_detector_counts_one_each_where_it_said_nothing() -> None:
    rows = np.eye(3)
    _, embeddings = template_embeddings(rows, rows, [1, 1, 2], [1, 2, 1])
    assert embeddings == pytest.approx(np.array([[0.5**0.5, 0.5**0.5, 0], [0, 0, 1]]))


def test_what_does_not_belong_together_is_refused() -> None:
    rows = np.eye(3)
    with pytest.raises(ArgumentValueError, match="3 embeddings, 2 templates"):
        template_embeddings(rows, rows, [1, 1], [1, 2, 1])
    with pytest.raises(NonFiniteError, match="1 of 3"):
        template_embeddings(np.diag([1, np.nan, 1]), rows, [1] * 3, [1] * 3)
    ids, embeddings = template_embeddings(rows, rows, [1, 1, 2], [1, 2, 1])
    for unknown in (0, 3):
        with pytest.raises(ArgumentValueError, match=f"Template {unknown} of a pair has no pictures"):
            pair_scores(ids, embeddings, np.array([[1, unknown]]))
