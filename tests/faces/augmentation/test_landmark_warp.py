import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.faces.augmentation.landmark_warp import (
    anchored_points,
    delaunay,
    landmark_map,
    piecewise_linear,
    triangle_of_pixel,
)

SIZE = 64


def _face(seed=0, low=10.0, high=54.0):
    return np.random.default_rng(seed).uniform(low, high, (68, 2))


def slow_map(sources, targets, triangles, size):
    """Pixel by pixel: find a triangle by its barycentric coordinates, and weigh its corners' sources with them."""
    result = np.stack(np.meshgrid(np.arange(float(size)), np.arange(float(size))), axis=-1)
    for y in range(size):
        for x in range(size):
            for triangle in triangles:
                a, b, c = targets[triangle]
                matrix = np.stack([b - a, c - a], axis=1)
                if abs(np.linalg.det(matrix)) < 1e-9:
                    continue
                u, v = np.linalg.solve(matrix, [x, y] - a)
                if min(u, v, 1 - u - v) >= -1e-9:
                    result[y, x] = np.array([1 - u - v, u, v]) @ sources[triangle]
                    break
    return result


def test_the_map_agrees_with_the_slow_version():
    own = _face(0, 4, 20)
    sources, targets = anchored_points(own, own + np.random.default_rng(2).normal(0, 1, (68, 2)), 24)
    expected = slow_map(sources, targets, delaunay(targets, 24), 24)
    np.testing.assert_allclose(piecewise_linear(sources, targets, 24), expected, atol=1e-3)


def test_equal_shapes_give_the_identity():
    positions = landmark_map(_face(), _face(), SIZE)
    expected = np.stack(np.meshgrid(np.arange(SIZE), np.arange(SIZE)), axis=-1)
    np.testing.assert_allclose(positions, expected, atol=1e-4)


def test_a_point_moved_down_bends_the_image_down():
    # Elsewhere the axes are exchanged, and the image bends sideways at the transposed place.
    own = _face()
    own[30] = (20, 40)
    near = np.hypot(*(own - own[30]).T) < 8
    near[30] = False
    own[near] += 20
    own = np.clip(own, 2, 60)
    target = own.copy()
    target[30] = (20, 43)
    positions = landmark_map(own, target, SIZE)
    np.testing.assert_allclose(positions[43, 20], (20, 40), atol=1e-3)
    np.testing.assert_allclose(positions[20, 43], (43, 20), atol=1e-3)


def test_every_landmark_that_lands_on_a_pixel_gets_its_source():
    target = np.random.default_rng(3).permutation(
        np.stack(np.meshgrid(np.arange(8, 56, 5), np.arange(8, 56, 5)), -1).reshape(-1, 2)
    )
    target = target[:68].astype(float)
    own = target + np.random.default_rng(4).normal(0, 0.6, target.shape)
    positions = landmark_map(own, target, SIZE)
    for source, (x, y) in zip(own[17:], target[17:].astype(int), strict=True):
        np.testing.assert_allclose(positions[y, x], source, atol=1e-3)


def test_border_points_stay():
    positions = landmark_map(_face(0), _face(1), SIZE)
    last, half = SIZE - 1, SIZE // 2 - 1
    for x, y in [(0, 0), (0, last), (last, last), (last, 0), (half, 0), (half, last), (last, half), (0, half)]:
        np.testing.assert_allclose(positions[y, x], (x, y), atol=1e-3)


def test_jaw_points_inside_either_inner_face_are_left_out_of_both():
    own, target = _face(0, 20, 44), _face(1, 20, 44)
    own[:17] = target[:17] = np.stack([np.linspace(2, 60, 17), np.full(17, 2.0)], axis=1)
    own[3] = (32, 32)
    target[5] = (32, 32)
    sources, targets = anchored_points(own, target, SIZE)
    assert len(sources) == len(targets) == 68 - 2 + 8
    for index in (3, 5):
        assert not (sources == own[index]).all(axis=1).any()
        assert not (targets == target[index]).all(axis=1).any()


def test_the_hull_s_own_point_17_is_kept():
    own = _face(0, 20, 44)
    own[17] = (5, 5)
    sources, _ = anchored_points(own, own, SIZE)
    assert (sources == own[17]).all(axis=1).any()


@given(st.integers(0, 10_000), st.floats(-20, 10), st.floats(54, 90))
def test_any_shapes_give_finite_positions(seed, low, high):
    own, target = _face(seed, low, high), _face(seed + 1, low, high)
    positions = landmark_map(own, target, SIZE)
    assert positions.shape == (SIZE, SIZE, 2)
    assert np.isfinite(positions).all()


@pytest.mark.parametrize("target", [np.full((68, 2), 30.0), np.stack([np.linspace(10, 50, 68)] * 2, axis=1)])
def test_degenerate_shapes_give_finite_positions(target):
    assert np.isfinite(landmark_map(_face(), target, SIZE)).all()


@given(st.integers(0, 10_000))
def test_triangles_cover_every_pixel_once(seed):
    points = np.concatenate([_face(seed), [(0, 0), (0, 63), (63, 63), (63, 0)]])
    triangles = delaunay(points, SIZE)
    assert (triangle_of_pixel(points[triangles], SIZE) >= 0).all()
    a, b, c = (points[triangles[:, i]] for i in range(3))
    areas = np.abs((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]) / 2
    assert areas.sum() == pytest.approx(63 * 63, rel=1e-5)


def test_no_point_lies_within_the_circle_of_a_triangle():
    points = _face(5)
    for triangle in delaunay(points, SIZE):
        a, b, c = points[triangle]
        matrix = 2 * np.stack([b - a, c - a])
        centre = np.linalg.solve(matrix, [b @ b - a @ a, c @ c - a @ a])
        distances = np.hypot(*(points - centre).T)
        assert distances.min() >= np.hypot(*(a - centre)) - 1e-3


def test_pixels_outside_all_triangles_keep_their_place():
    targets = np.array([(20.0, 20.0), (40.0, 20.0), (30.0, 40.0)])
    positions = piecewise_linear(targets + 3, targets, SIZE)
    for x, y in ((5, 5), (5, 25), (60, 25), (60, 60)):
        np.testing.assert_allclose(positions[y, x], (x, y))
    np.testing.assert_allclose(positions[25, 30], (33, 28), atol=1e-4)
