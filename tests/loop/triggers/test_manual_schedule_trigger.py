from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.loop import ManualScheduleTrigger

points = st.lists(st.integers(1, 40), min_size=1, max_size=8)
steps = st.lists(st.integers(0, 9), min_size=1, max_size=25)


@given(points=points, start=st.integers(0, 45), length=st.integers(1, 45))
def test_in_steps_of_one_it_fires_at_its_points(stand_in, points, start, length) -> None:
    trigger = ManualScheduleTrigger(points, "iteration")
    trigger.initialize(stand_in(iteration=start))
    indices = range(start + 1, start + length + 1)
    assert [i for i in indices if trigger(stand_in(iteration=i))] == [i for i in indices if i in points]


@given(points=points, start=st.integers(0, 30), steps=steps)
def test_a_call_fires_when_it_passed_at_least_one_point(stand_in, points, start, steps) -> None:
    trigger = ManualScheduleTrigger(points, "iteration")
    trigger.initialize(stand_in(iteration=start))
    index = start
    for step in steps:
        before, index = index, index + step
        assert trigger(stand_in(iteration=index)) == any(before < point <= index for point in points)
        assert trigger.finished == (index >= max(points))


@given(points=points, indices=st.lists(st.integers(0, 45), min_size=1, max_size=20))
def test_an_index_that_stands_still_or_goes_back_never_fires(stand_in, points, indices) -> None:
    trigger = ManualScheduleTrigger(points, "iteration")
    before = 0
    trigger.initialize(stand_in())
    for index in indices:
        fires = trigger(stand_in(iteration=index))
        assert fires == any(before < point <= index for point in points)
        before = index


@given(numerators=st.lists(st.integers(1, 400), min_size=1, max_size=5), length=st.integers(1, 13))
def test_fractions_of_an_epoch_are_exact(stand_in, numerators, length) -> None:
    exact = [Fraction(numerator, 100) for numerator in numerators]
    trigger = ManualScheduleTrigger([float(point) for point in exact], "epoch")
    trainer = stand_in(updates_per_epoch=length)
    trigger.initialize(trainer)
    whole = all(point.denominator == 1 for point in exact)
    before = Fraction(0)
    for update in range(1, 5 * length + 1):
        trainer.updater.state.advance()
        now = Fraction(update // length) if whole else Fraction(update, length)
        assert trigger(trainer) == any(before < point <= now for point in exact)
        before = now


def test_it_is_not_finished_before_it_was_asked() -> None:
    assert not ManualScheduleTrigger(3, "iteration").finished


def test_used_alone_the_first_call_is_its_base_line(stand_in) -> None:
    trigger = ManualScheduleTrigger([3, 5, 7], "iteration")
    assert [trigger(stand_in(iteration=index)) for index in (4, 5, 6, 7)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("points", "unit", "kind", "match"),
    [
        ([3], "hour", ValueError, r"unit is 'hour'\. Use one of iteration, epoch"),
        ([], "iteration", ValueError, "points is empty"),
        ([3, 0], "iteration", ValueError, "points must be above 0, not 0"),
        ([3, 1.5], "iteration", ValueError, r"points must be a whole number, not 1\.5"),
        ([3, True], "iteration", TypeError, "points must be a number, not True"),
        ("3", "iteration", TypeError, "points must be a number or a list of numbers, not '3'"),
        ({3: 1}, "iteration", TypeError, "points must be a number or a list of numbers"),
        ([float("nan")], "epoch", ValueError, "points must be finite"),
    ],
)
def test_the_message_names_what_is_wrong(points, unit, kind, match) -> None:
    with pytest.raises(kind, match=match):
        ManualScheduleTrigger(points, unit)


def test_a_fraction_of_an_epoch_needs_a_length(stand_in) -> None:
    with pytest.raises(RuntimeError, match="length of a pass is unknown"):
        ManualScheduleTrigger([1, 0.5], "epoch").initialize(stand_in())
    ManualScheduleTrigger([1, 2], "epoch").initialize(stand_in())
