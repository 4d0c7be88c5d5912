"""Strokes: curves through their points, soft fills, places off the canvas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.faces.drawn import brushes


@given(st.integers(3, 12), st.booleans(), st.integers(1, 7), st.integers(0, 1000))
def test_a_smooth_curve_goes_through_its_points(count: int, closed: bool, steps: int, seed: int) -> None:
    points = np.random.default_rng(seed).normal(0, 10, (count, 2))
    curve = brushes.smooth(points, closed=closed, steps=steps)
    assert np.allclose(curve[::steps][:count], points)
    assert len(curve) == (count * steps if closed else (count - 1) * steps + 1)


def test_a_filled_square_covers_its_pixels_with_sub_pixel_edges() -> None:
    image = np.zeros((20, 20), np.uint8)
    brushes.fill(image, np.array([(4.0, 4), (12, 4), (12, 12), (4, 12)]), 255)
    assert (image[5:12, 5:12] == 255).all()
    assert not image[:3].any()
    moved = np.zeros((20, 20), np.uint8)
    brushes.fill(moved, np.array([(4.5, 4), (12.5, 4), (12.5, 12), (4.5, 12)]), 255)
    assert (moved != image).any()


def test_a_soft_fill_blends_by_its_opacity() -> None:
    image = np.full((40, 40, 3), 100, np.uint8)
    square = np.array([(10.0, 10), (30, 10), (30, 30), (10, 30)])
    brushes.soft_fill(image, square, (200, 100, 0), 0.5, 2.0)
    assert tuple(image[20, 20]) == (150, 100, 50)
    assert 100 < image[10, 20, 0] < 150  # the edge is soft
    assert tuple(image[2, 2]) == (100, 100, 100)


def test_drawing_inside_a_shape_leaves_the_outside_alone() -> None:
    image = np.full((30, 30, 3), 10, np.uint8)
    opened = brushes.clipped_copy(image, np.array([(5.0, 5), (20, 5), (20, 20), (5, 20)]))
    assert opened is not None
    window, drawn, mask, corner = opened
    drawn[:] = 250
    brushes.blend_copy(window, drawn, mask)
    assert tuple(corner) == (3, 3)
    assert (image[8:18, 8:18] == 250).all()
    assert (image[25:] == 10).all()


@pytest.mark.parametrize("shift", [(-500.0, 0.0), (500.0, 500.0)])
def test_shapes_off_the_canvas_are_no_error(shift: tuple[float, float]) -> None:
    image = np.full((30, 30, 3), 10, np.uint8)
    square = np.array([(5.0, 5), (20, 5), (20, 20), (5, 20)]) + shift
    assert brushes.clipped_copy(image, square) is None
    brushes.soft_fill(image, square, (255, 255, 255), 1.0, 3.0)
    brushes.fill(image, square, (255, 255, 255))
    brushes.disc(image, square[0], 4.0, (255, 255, 255))
    assert (image == 10).all()


@pytest.mark.parametrize("width", [0.2, 0.6, 3.0])
def test_thin_strokes_fade_and_wide_ones_cover(width: float) -> None:
    image = np.full((20, 60, 3), 200, np.uint8)
    brushes.stroke(image, np.array([(5.0, 10.0), (30, 10), (55, 10)]), (0, 0, 0), width)
    darkest = int(image.min())
    assert darkest < 200
    assert (darkest == 0) == (width >= 1)
