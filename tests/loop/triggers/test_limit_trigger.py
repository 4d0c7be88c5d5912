from __future__ import annotations

import pytest
from loop_stand_ins import CountingUpdater, ListOfSnapshots

from ostinato.loop import LimitTrigger, Trainer


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


@pytest.mark.parametrize("limit", ["1min", (60, "second"), LimitTrigger(60, "second"), [(10**6, "iteration"), "1min"]])
def test_a_limit_of_time_counts_all_processes_of_a_run_and_may_be_raised(limit) -> None:
    now = [0.0]
    kept: list = []

    class Slow(CountingUpdater):
        def update(self) -> None:
            now[0] += 7
            super().update()

    def process(stop, until=None):
        trainer = Trainer(Slow(), stop, clock=lambda: now[0])
        trainer.extend(ListOfSnapshots(kept), trigger=(1, "iteration"))
        if until is not None:
            trainer.extend(lambda t: t.request_stop(), name="stop", trigger=(until, "iteration"))
        trainer.run()
        now[0] += 1000  # nobody trains
        return trainer.updater.state.iteration

    assert process(limit, until=4) == 4
    assert process(limit) == 9
    assert process(limit) == 9
    assert process("80sec") == 12


@pytest.mark.parametrize(
    ("limit", "unit", "kind", "match"),
    [
        (0, "second", ValueError, "LimitTrigger: limit must be above 0, not 0"),
        (1.5, "iteration", ValueError, "limit must be a whole number"),
        (1, "minute", ValueError, "unit is 'minute'"),
        ("1", "epoch", TypeError, "limit must be a number, not '1'"),
        (True, "epoch", TypeError, "limit must be a number, not True"),
    ],
)
def test_bad_arguments_are_refused(limit, unit, kind, match) -> None:
    with pytest.raises(kind, match=match):
        LimitTrigger(limit, unit)
