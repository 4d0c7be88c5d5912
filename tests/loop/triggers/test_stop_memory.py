"""A trigger that has stopped a run keeps saying so in the processes after it."""

from __future__ import annotations

from typing import Any

import pytest
from loop_stand_ins import CountingUpdater, ListOfSnapshots

from ostinato.loop import (
    BestValueTrigger,
    EarlyStoppingTrigger,
    FunctionTrigger,
    IntervalTrigger,
    LimitTrigger,
    ManualScheduleTrigger,
    MinValueTrigger,
    ThresholdTrigger,
    TimeTrigger,
    Trainer,
    from_counters,
    report,
)

VALUES = [5, 6, 4, 7, 8, 9, 3, 9, 9, 9, 2, 9, 9, 9, 9]


class Updater(CountingUpdater):
    def update(self) -> None:
        report("v", VALUES[self.state.iteration])
        super().update()


def iterations(kept: list[dict[str, Any]], stop: Any, until: int | None = None) -> int:
    """At which iteration a process ends; a second passes with every one."""
    updater = Updater(3)
    trainer = Trainer(updater, stop, clock=lambda: float(updater.state.iteration))
    trainer.extend(ListOfSnapshots(kept), trigger=(1, "iteration"))
    if until is not None:
        trainer.extend(lambda t: t.request_stop(), name="stop", trigger=(until, "iteration"))
    trainer.run()
    return updater.state.iteration


STOPS = {
    "interval": lambda: IntervalTrigger(4, "iteration"),
    "epochs": lambda: IntervalTrigger(2, "epoch"),
    "points": lambda: ManualScheduleTrigger([3, 7], "iteration"),
    "limit": lambda: LimitTrigger(5, "iteration"),
    "time": lambda: TimeTrigger(6),
    "values": lambda: BestValueTrigger("v", max, (2, "iteration")),
    "threshold": lambda: ThresholdTrigger("v", 4, "min", (1, "iteration")),
    "early stopping": lambda: EarlyStoppingTrigger((1, "iteration"), "v", 2, max_trigger=None),
    "list": lambda: [(9, "epoch"), IntervalTrigger(4, "iteration")],
    "or": lambda: IntervalTrigger(4, "iteration") | MinValueTrigger("w"),
    "and": lambda: IntervalTrigger(2, "iteration") & IntervalTrigger(3, "iteration"),
}


@pytest.mark.parametrize("name", STOPS)
@pytest.mark.parametrize("killed_after", [None, 1])
def test_a_run_that_was_stopped_stays_stopped(name, killed_after) -> None:
    kept: list[dict[str, Any]] = []
    if killed_after is not None:
        iterations(kept, STOPS[name](), killed_after)
    end = iterations(kept, STOPS[name]())
    assert 1 < end < len(VALUES)
    for _ in range(2):
        assert iterations(kept, STOPS[name]()) == end
    assert len(kept) == end  # nothing is saved by a process that does nothing


@pytest.mark.parametrize(
    ("first", "then", "ends"),
    [
        (IntervalTrigger(4, "iteration"), IntervalTrigger(5, "iteration"), (4, 5)),
        (ManualScheduleTrigger(3, "iteration"), ManualScheduleTrigger([3, 7], "iteration"), (3, 7)),
        ([(2, "epoch"), (99, "iteration")], [(3, "epoch"), (99, "iteration")], (6, 9)),
        (LimitTrigger(5, "iteration"), LimitTrigger(4, "iteration"), (5, 5)),
        (LimitTrigger(5, "iteration"), IntervalTrigger(4, "iteration"), (5, 8)),
    ],
)
def test_other_settings_decide_anew(first, then, ends) -> None:
    kept: list[dict[str, Any]] = []
    assert (iterations(kept, first), iterations(kept, then)) == ends
    assert iterations(kept, then) == ends[1]


def test_a_stop_that_somebody_asked_for_is_not_remembered() -> None:
    kept: list[dict[str, Any]] = []
    assert iterations(kept, IntervalTrigger(9, "iteration"), until=4) == 4
    assert iterations(kept, IntervalTrigger(9, "iteration")) == 9


@pytest.mark.parametrize(
    "stop",
    [
        lambda limit: lambda trainer: trainer.updater.state.iteration >= limit,
        lambda limit: [lambda trainer: trainer.updater.state.iteration >= limit, (99, "iteration")],
        lambda limit: FunctionTrigger(from_counters(lambda: True), trigger=(limit, "iteration")),
    ],
)
def test_a_function_says_by_itself_whether_its_limit_was_raised(stop) -> None:
    kept: list[dict[str, Any]] = []
    assert (iterations(kept, stop(3)), iterations(kept, stop(6))) == (3, 6)
