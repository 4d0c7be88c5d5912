from __future__ import annotations

import math

import numpy as np
import pytest

from ostinato.optim.rate_finder import RateFinder
from ostinato.swap.rate_curve import draw_rate_curve

GREEN, YELLOW, RED = (30, 150, 60), (230, 160, 0), (210, 40, 40)


def searched(losses: list[float], batches: int) -> RateFinder:
    finder = RateFinder(batches)
    for loss in losses:
        if not finder.is_over:
            finder.add(loss)
    finder.ended = finder.ended or "diverged"
    return finder


@pytest.mark.parametrize(
    "losses", [[math.nan], [0.5], [0.5] * 5, [0.5] * 40, [0.5] * 20 + [math.inf], [0.0] * 30, [-1e-8] * 30, [1e30] * 40]
)
def test_any_search_can_be_drawn(losses: list[float]) -> None:
    picture = draw_rate_curve(searched(losses, 40), "default")
    assert (picture.shape, picture.dtype) == ((620, 1000, 3), np.uint8)


def test_the_strengths_stand_on_the_curve_in_the_order_of_their_rates() -> None:
    finder = searched([1.0 - number / 400 for number in range(300)] + [9.0] * 40, 400)
    picture = draw_rate_curve(finder, "aggressive")[70:530, 100:960]
    columns = []
    for colour in (GREEN, YELLOW, RED):
        rows, places = np.nonzero((picture == colour).all(axis=2))
        assert len(rows) > 50
        columns.append(places.mean())
    assert columns == sorted(columns)
    # On a logarithmic axis a factor of two is the same distance everywhere.
    assert columns[1] - columns[0] == pytest.approx(columns[2] - columns[1], abs=2)


def test_what_the_chosen_strength_is_can_be_read() -> None:
    finder = searched([1.0 - number / 400 for number in range(300)] + [9.0] * 40, 400)
    pictures = [draw_rate_curve(finder, strength) for strength in ("default", "aggressive", "extreme")]
    assert not np.array_equal(pictures[0], pictures[1])
    assert not np.array_equal(pictures[1], pictures[2])
