import numpy as np
import pytest

from ostinato.errors import ArgumentValueError
from ostinato.faces.augmentation.neighbours import LandmarkNeighbours


def _sides(*counts, seed=0):
    random = np.random.default_rng(seed)
    return [random.uniform(0, 64, (count, 68, 2)).astype(np.float32) for count in counts]


def test_nearest_faces_are_those_of_the_smallest_squared_distance():
    sides = _sides(5, 30)
    neighbours = LandmarkNeighbours(sides)
    assert neighbours.number == 4  # one less than the smaller side has
    for face in range(5):
        distances = ((sides[1].astype(float) - sides[0][face]) ** 2).sum(axis=(1, 2))
        assert neighbours.nearest(0, face, 1).tolist() == np.argsort(distances)[:4].tolist()


def test_ten_are_used_where_there_are_enough():
    assert LandmarkNeighbours(_sides(40, 30)).number == 10


def test_ties_are_decided_by_index():
    sides = _sides(12, 40)
    sides[1][:] = sides[1][7]
    assert LandmarkNeighbours(sides).nearest(0, 0, 1).tolist() == list(range(10))


def test_pairs_hold_the_own_face_and_one_of_its_neighbours():
    sides = _sides(20, 25)
    neighbours = LandmarkNeighbours(sides)
    picks = np.array([[0.3, 0.0], [0.9, 0.999]])
    pairs = neighbours.pairs(np.array([0, 1]), np.array([4, 9]), picks)
    np.testing.assert_array_equal(pairs[0], [sides[0][4], sides[1][neighbours.nearest(0, 4, 1)[0]]])
    np.testing.assert_array_equal(pairs[1], [sides[1][9], sides[0][neighbours.nearest(1, 9, 0)[-1]]])


def test_of_three_sides_each_other_one_is_drawn():
    sides = _sides(3, 3, 3)
    picks = np.stack([np.linspace(0, 0.999, 8), np.zeros(8)], axis=1)
    pairs = LandmarkNeighbours(sides).pairs(np.full(8, 1), np.zeros(8, dtype=int), picks)
    drawn = [next(side for side in range(3) if (sides[side] == pair[1]).all(axis=(1, 2)).any()) for pair in pairs]
    assert drawn == [0] * 4 + [2] * 4


def test_a_side_with_one_face_still_gives_a_neighbour():
    neighbours = LandmarkNeighbours(_sides(1, 1))
    assert neighbours.nearest(0, 0, 1).tolist() == [0]


def test_one_side_alone_is_refused():
    with pytest.raises(ArgumentValueError, match="only one side"):
        LandmarkNeighbours(_sides(5))
