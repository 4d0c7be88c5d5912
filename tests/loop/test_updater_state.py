from __future__ import annotations

from fractions import Fraction

import pytest

from ostinato.loop import UpdaterState


def test_the_last_update_of_a_pass_raises_the_epoch_in_the_same_step() -> None:
    state = UpdaterState(updates_per_epoch=2)
    state.advance(samples=8)
    assert (state.epoch, state.iteration_in_epoch, state.samples_in_epoch, state.epoch_detail) == (
        0,
        1,
        8,
        Fraction(1, 2),
    )
    state.advance(samples=8)
    assert (state.epoch, state.iteration_in_epoch, state.samples_in_epoch, state.samples) == (1, 0, 0, 16)


def test_the_position_is_unknown_without_a_length() -> None:
    state = UpdaterState()
    state.advance()
    assert state.epoch_detail is None
    with pytest.raises(RuntimeError, match="length of a pass is unknown"):
        _ = state.exact_epoch


def test_tokens_are_counted_only_where_asked_for() -> None:
    without, counted = UpdaterState(), UpdaterState(tokens=0)
    without.advance(tokens=5)
    counted.advance(tokens=5)
    assert (without.tokens, counted.tokens) == (None, 5)


@pytest.mark.parametrize("value", [-1, 1.5, True, "3", None])
def test_a_damaged_counter_is_refused_and_nothing_is_changed(value: object) -> None:
    state = UpdaterState(iteration=3)
    with pytest.raises(ValueError, match="saved counter epoch"):
        state.load_state_dict({"iteration": 9, "epoch": value})
    assert state.iteration == 3
