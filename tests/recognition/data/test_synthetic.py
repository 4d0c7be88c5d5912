from __future__ import annotations

import numpy as np
import pytest

from ostinato.errors import ArgumentValueError
from ostinato.recognition.data.synthetic import SyntheticSource


def test_the_same_seed_gives_the_same_pictures_and_another_one_others() -> None:
    first, again, other = (SyntheticSource(3, 9, seed=seed).read(4) for seed in (0, 0, 1))
    assert first[0].shape == (112, 112, 3)
    assert first[0].dtype == np.uint8
    assert np.array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])
    assert first[1] == 1


def test_every_identity_has_about_as_many_pictures() -> None:
    assert np.bincount(SyntheticSource(4, 10).labels).tolist() == [3, 3, 2, 2]


def test_pictures_of_one_identity_resemble_each_other_more_than_those_of_two() -> None:
    source = SyntheticSource(2, 40)
    pictures = np.array([source.read(index)[0][::16, ::16].astype(float).ravel() for index in range(40)])
    distance = np.linalg.norm(pictures[:, None] - pictures[None], axis=2)
    same = (source.labels[:, None] == source.labels[None]) & ~np.eye(40, dtype=bool)
    assert distance[same].max() < distance[source.labels[:, None] != source.labels[None]].min()
    assert distance[same].min() > 0


@pytest.mark.parametrize("options", [(0, 5, 112, 0.4), (6, 5, 112, 0.4), (2, 5, 3, 0.4), (2, 5, 112, 1.5)])
def test_sets_that_make_no_sense_are_refused(options: tuple[int, int, int, float]) -> None:
    with pytest.raises(ArgumentValueError):
        SyntheticSource(options[0], options[1], image_size=options[2], variation=options[3])
