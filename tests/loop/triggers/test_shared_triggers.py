"""One trigger object in several places of a run: as the trigger of two extensions, and as a part of other triggers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loop_stand_ins import AsksItself, CountingUpdater, ListOfSnapshots
from rank_threads import on_ranks

from ostinato.extensions import Snapshot, StandardEvaluator
from ostinato.loop import (
    EarlyStoppingTrigger,
    FunctionTrigger,
    IntervalTrigger,
    ManualScheduleTrigger,
    MaxValueTrigger,
    MinValueTrigger,
    OnceTrigger,
    ThresholdTrigger,
    TimeTrigger,
    Trainer,
    Trigger,
    report,
)

VALUES = [9, 7, 8, 6, 6, 5, 7, 4, 3, 3, 5, 2]
ITERATIONS = len(VALUES)

MAKERS = {
    "interval": lambda: IntervalTrigger(3, "iteration"),
    "points": lambda: ManualScheduleTrigger([2, 5, 11], "iteration"),
    "once": lambda: OnceTrigger(),
    "time": lambda: TimeTrigger(2.5),
    "least value": lambda: MinValueTrigger("v", (2, "iteration")),
    "greatest value": lambda: MaxValueTrigger("v", (3, "iteration")),
    "threshold": lambda: ThresholdTrigger("v", 4, "min", (2, "iteration")),
    "function": lambda: FunctionTrigger(lambda: True, trigger=(4, "iteration")),
    "early stopping": lambda: EarlyStoppingTrigger((1, "iteration"), "v", 2, max_trigger=None),
    "or": lambda: IntervalTrigger(5, "iteration") | MinValueTrigger("v", (2, "iteration")),
    "and": lambda: IntervalTrigger(2, "iteration") & IntervalTrigger(3, "iteration"),
}


class Updater(CountingUpdater):
    def update(self) -> None:
        report("v", VALUES[self.state.iteration])
        super().update()


def fired(
    places: dict[str, Any], until: int = ITERATIONS, kept: list[dict[str, Any]] | None = None, group: Any = None
) -> dict[str, list[int]]:
    """Where extensions with these triggers run; the clock shows a second per iteration."""
    updater = Updater(4)
    trainer = Trainer(updater, (until, "iteration"), group=group, clock=lambda: float(updater.state.iteration))
    found: dict[str, list[int]] = {name: [] for name in places}
    for name, trigger in places.items():
        trainer.extend(lambda t, name=name: found[name].append(t.updater.state.iteration), name=name, trigger=trigger)
    if kept is not None:
        trainer.extend(ListOfSnapshots(kept), trigger=(1, "iteration"))
    trainer.run()
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_in_all_its_places_it_gives_the_same_answer(name) -> None:
    alone = fired({"alone": MAKERS[name]()})["alone"]
    assert alone
    shared = MAKERS[name]()
    places = {
        "first": shared,
        "second": shared,
        "or": shared | (lambda trainer: False),
        "and": shared & (lambda trainer: True),
        "nested": (shared & shared) | ManualScheduleTrigger(10**9, "iteration"),
        "inside": FunctionTrigger(lambda: True, trigger=shared),
    }
    assert fired(places) == dict.fromkeys(places, alone)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("killed_after", [1, 4, 7])
def test_also_after_a_resume(name, killed_after) -> None:
    alone = fired({"alone": MAKERS[name]()})["alone"]
    kept: list[dict[str, Any]] = []
    found: dict[str, list[int]] = {"first": [], "second": [], "or": []}
    for until in (killed_after, ITERATIONS):
        shared = MAKERS[name]()
        part = fired({"first": shared, "second": shared, "or": shared | (lambda trainer: False)}, until, kept)
        for place, iterations in part.items():
            found[place] += iterations
    if name == "time":  # the clock of the second process starts at the restored iteration
        alone = found["first"]
    assert found == dict.fromkeys(found, alone)


def test_a_shared_check_inside_two_value_triggers_serves_both() -> None:
    check = IntervalTrigger(2, "iteration")
    places = {"check": check, "least": MinValueTrigger("v", check), "greatest": MaxValueTrigger("v", check)}
    assert fired(places) == {"check": [2, 4, 6, 8, 10, 12], "least": [2, 4, 6, 10], "greatest": [2]}
    places = {"least": MinValueTrigger("v", "2it"), "greatest": MaxValueTrigger("v", "2it")}
    assert fired(places) == {"least": [2, 4, 6, 10], "greatest": [2]}


def test_the_stop_trigger_may_be_shared_too() -> None:
    stopping = EarlyStoppingTrigger((1, "iteration"), "v", 2, max_trigger=None)
    trainer = Trainer(Updater(), stopping)
    seen: list[int] = []
    trainer.extend(lambda t: seen.append(t.updater.state.iteration), name="last", trigger=stopping, priority=-200)
    trainer.run()
    assert trainer.updater.state.iteration == 11
    assert seen == [11]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("priority", [200, 50])  # before the trainer asks it for the other extension, and after
def test_an_extension_that_asks_it_by_itself_gets_the_same_answer(name, priority) -> None:
    shared = MAKERS[name]()
    updater = Updater(4)
    trainer = Trainer(updater, (ITERATIONS, "iteration"), clock=lambda: float(updater.state.iteration))
    first, second = AsksItself(shared), AsksItself(shared)
    seen: dict[str, list[int]] = {"asked by the trainer": [], "part": []}
    trainer.extend(first, "first", priority=priority)
    trainer.extend(second, "second", priority=priority)
    for place, trigger in (("asked by the trainer", shared), ("part", shared | (lambda trainer: False))):
        trainer.extend(
            lambda t, place=place: seen[place].append(t.updater.state.iteration), name=place, trigger=trigger
        )
    trainer.run()
    alone = fired({"alone": MAKERS[name]()})["alone"]
    assert [first.fired, second.fired, *seen.values()] == [alone] * 4


@pytest.mark.parametrize("name", MAKERS)
def test_all_ranks_run_an_extension_in_the_same_iterations(name) -> None:
    def work(group: Any) -> dict[str, list[int]]:
        shared: Trigger = MAKERS[name]()
        return fired({"first": shared, "or": shared | (lambda trainer: False)}, group=group)

    results = on_ranks(2, work)
    assert results[0] == results[1]
    assert results[0]["first"] == results[0]["or"]
    if name != "time":  # which ranks look at every tenth iteration only
        assert results[0]["first"] == fired({"alone": MAKERS[name]()})["alone"]


def test_saving_and_what_an_evaluator_does_besides_may_share_it_too(tmp_path: Path) -> None:
    shared, found = IntervalTrigger(2, "iteration"), {"first": [], "also": []}
    trainer = Trainer(Updater(), (7, "iteration"), tmp_path)
    trainer.extend(lambda t: found["first"].append(t.updater.state.iteration), "first", shared, priority=400)
    besides = {"samples": (lambda t: found["also"].append(t.updater.state.iteration), shared)}
    trainer.extend(StandardEvaluator({}, [0], lambda batch: 0, also=besides), trigger=(1, "iteration"))
    saved: list[int] = []
    trainer.extend(
        Snapshot(every=shared, save_last=False, on_result=lambda result: saved.append(result.iteration)),
    )
    trainer.run()
    assert found == {"first": [2, 4, 6], "also": [2, 4, 6]}
    assert saved == [2, 4, 6]
