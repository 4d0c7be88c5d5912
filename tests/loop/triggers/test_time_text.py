from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.loop.triggers import parse_time


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("1000ba", 1000, "iteration"),
        ("1000it", 1000, "iteration"),
        ("10 iteration", 10, "iteration"),
        ("3epoch", 3, "epoch"),
        ("30min", 1800, "second"),
        ("0.5Minute", 30, "second"),
        ("2second", 2, "second"),
        ("4sp", 4, "sample"),
        ("9token", 9, "token"),
        ("1e3 ba", 1000, "iteration"),
        ("2EP", 2, "epoch"),
        ("0.5ep", Fraction(1, 2), "epoch"),
        (" 30 sec ", 30, "second"),
        ("7sample", 7, "sample"),
        ("5tok", 5, "token"),
        (".1dur", Fraction(1, 10), "dur"),
    ],
)
def test_a_number_and_a_unit_are_read(text: str, number: Fraction, unit: str) -> None:
    assert parse_time(text) == (number, unit)


@pytest.mark.parametrize(
    "text",
    [
        *("", "10", "ba", "-3ep", "+3ep", "1e9999ba", "3 ep 2 ba", "1_000ba", "٣ba", "nanba", "infep", "9" * 70 + "ba"),
        *("5m", "5s", "2h", "5iters", "5its", "5 i t", "5min30sec", "5epp"),
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(text)


def test_iter_is_refused_because_it_means_two_things() -> None:
    with pytest.raises(ValueError, match="means different things"):
        parse_time("5iter")


@given(st.text(max_size=80))
def test_no_text_fails_in_another_way(text: str) -> None:
    try:
        number, _ = parse_time(text)
    except ValueError:
        return
    assert number >= 0
