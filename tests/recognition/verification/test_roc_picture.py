"""The picture of curves."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.errors import ArgumentValueError
from ostinato.recognition.verification import VerificationResult, roc_curve, verify
from ostinato.recognition.verification.roc_picture import HEIGHT, WIDTH, draw_roc, height_at

BLUE, ORANGE = (31, 90, 180), (214, 84, 24)


def result(noise: float, pairs: int = 400) -> VerificationResult:
    random = np.random.default_rng(0)
    people = random.normal(size=(pairs, 2, 32))
    same = np.arange(pairs) % 2 == 0
    people[same, 1] = people[same, 0]
    rows = (people + noise * random.normal(size=people.shape)).reshape(-1, 32)
    return verify(rows, rows, same)


def coloured(picture: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    """Rows and columns of the pixels of exactly this colour, left of the legend."""
    return np.argwhere((picture[:, : WIDTH // 2] == colour).all(axis=2))


def test_the_better_curve_lies_higher() -> None:
    picture = draw_roc([("good", result(0.5)), ("bad", result(1.5))], "r18 at iteration 1")
    assert picture.shape == (HEIGHT, WIDTH, 3)
    assert picture.dtype == np.uint8
    assert coloured(picture, BLUE)[:, 0].mean() < coloured(picture, ORANGE)[:, 0].mean()


def test_curves_begin_where_their_set_can_say_something() -> None:
    picture = draw_roc([("large", result(1.0, 4000)), ("small", result(1.0, 400))])
    assert coloured(picture, BLUE)[:, 1].min() < coloured(picture, ORANGE)[:, 1].min()


@pytest.mark.parametrize("noise", [0.0, 1e3])
def test_perfect_and_useless_models_are_drawn(noise: float) -> None:
    assert len(coloured(draw_roc([("x", result(noise))]), BLUE))


def test_names_that_the_font_lacks_do_no_harm() -> None:
    assert draw_roc([("Gesichter äöü 顔", result(1.0))], "Überschrift").shape == (HEIGHT, WIDTH, 3)


def test_the_height_is_what_is_accepted_without_exceeding_the_rate() -> None:
    curve = roc_curve(np.array([4.0, 3, 2, 1]), np.array([True, False, True, False]))
    assert [height_at(curve, far) for far in (0.0, 0.4, 0.5, 0.9, 1.0)] == [0.5, 0.5, 1.0, 1.0, 1.0]


def test_nothing_is_not_drawn() -> None:
    with pytest.raises(ArgumentValueError):
        draw_roc([])
