from __future__ import annotations

import pytest

from ostinato.loop import LimitTrigger


def test_it_counts_seconds_too(stand_in) -> None:
    trigger = LimitTrigger(1.5, "second")
    assert not trigger(stand_in(elapsed_time=1.4))
    assert trigger(stand_in(elapsed_time=1.5))


def test_a_fraction_of_an_epoch_is_reached_within_the_pass(stand_in) -> None:
    trigger = LimitTrigger(1.5, "epoch")
    trigger.initialize(stand_in(updates_per_epoch=4))
    assert not trigger(stand_in(epoch=1, iteration_in_epoch=1, updates_per_epoch=4))
    assert trigger(stand_in(epoch=1, iteration_in_epoch=2, updates_per_epoch=4))
    with pytest.raises(RuntimeError, match="length of a pass is unknown"):
        trigger.initialize(stand_in())
