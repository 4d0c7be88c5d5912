from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loop_stand_ins import AsksItself, CountingUpdater
from rank_threads import ThreadGroup, on_ranks

from ostinato.errors import StateError
from ostinato.extensions import Snapshot
from ostinato.loop import IntervalTrigger, MinValueTrigger, TimeTrigger, Trainer, report
from ostinato.loop.inner_trigger import InnerTrigger


def test_one_trigger_object_serves_two_extensions() -> None:
    trigger = IntervalTrigger(2, "iteration")
    first, second, third = AsksItself(trigger), AsksItself(trigger), AsksItself((2, "iteration"))
    trainer = Trainer(CountingUpdater(), (5, "iteration"), extensions=[first, second, third])
    trainer.run()
    assert first.fired == second.fired == third.fired == [2, 4]


def test_a_function_is_asked_every_time_and_none_never_fires() -> None:
    first, second = AsksItself(lambda trainer: trainer.updater.state.iteration == 3), AsksItself(None)
    Trainer(CountingUpdater(), (5, "iteration"), extensions=[first, second]).run()
    assert (first.fired, second.fired) == ([3], [])
    assert InnerTrigger(None).state_dict() == {}


def test_the_memory_of_the_trigger_travels() -> None:
    notes = AsksItself((10, "iteration"))
    Trainer(CountingUpdater(), (7, "iteration"), extensions=[notes]).run()
    assert notes.inner.state_dict() == {"unit": "iteration", "baseline": 7}
    inner = InnerTrigger((10, "iteration"))
    inner.load_state_dict({"unit": "iteration", "baseline": 3})
    assert inner.state_dict()["baseline"] == 3


@pytest.mark.parametrize(("argument", "error"), [(5, TypeError), ((0, "iteration"), ValueError), ("10", ValueError)])
def test_what_is_no_trigger_is_refused(argument: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        InnerTrigger(argument)


# --- several ranks ---------------------------------------------------------------------------------------------------

VALUES = [9, 7, 8, 6, 6, 5, 7, 4, 3, 3, 5, 2]


class Reporting(CountingUpdater):
    """Reports values whose means over two ranks are ``VALUES``."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def update(self) -> None:
        report("v", VALUES[self.state.iteration] + (1 if self.rank else -1) * (5 + self.state.iteration))
        super().update()


class OnFirstRank(AsksItself):
    """Asks its inner trigger on rank 0 only, as an extension that writes does."""

    def initialize(self, trainer: Any) -> None:
        super().initialize(trainer)
        self.is_active = trainer.group.rank == 0

    def __call__(self, trainer: Any) -> None:
        if self.is_active:
            super().__call__(trainer)

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.inner.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        self.inner.load_state_dict(state["inner"])


def fired_on(group: ThreadGroup, trigger: Any, ranks: Any, until: int = len(VALUES), folder: Any = None) -> list[int]:
    notes, updater = OnFirstRank(trigger), Reporting(group.rank)
    clock = lambda: updater.state.iteration * (1.0 if group.rank == 0 else 100.0)  # noqa: E731
    trainer = Trainer(updater, (until, "iteration"), folder or "result", group=group, agree_every=3, clock=clock)
    trainer.extend(notes, "notes", ranks=ranks)
    if folder is not None:
        trainer.extend(Snapshot())
    trainer.run()
    return notes.fired


@pytest.mark.parametrize("ranks", ["all", 0])
@pytest.mark.parametrize(
    "make",
    [
        lambda: MinValueTrigger("v", (2, "iteration")),
        lambda: MinValueTrigger("v", (1, "iteration")),
        lambda: MinValueTrigger("v", (2, "iteration")) | IntervalTrigger(5, "iteration"),
        lambda: MinValueTrigger("v", (2, "iteration")) & IntervalTrigger(4, "iteration"),
    ],
)
def test_all_ranks_ask_for_the_mean_of_a_value_wherever_the_extension_runs(make: Any, ranks: Any) -> None:
    class Alone(Reporting):
        def update(self) -> None:
            report("v", VALUES[self.state.iteration])
            CountingUpdater.update(self)

    alone = AsksItself(make())
    Trainer(Alone(0), (len(VALUES), "iteration"), extensions=[alone]).run()
    fired = on_ranks(2, lambda group: fired_on(group, make(), ranks))
    assert alone.fired
    assert fired == [alone.fired, []]


@pytest.mark.parametrize("ranks", ["all", 0])
def test_its_memory_of_all_ranks_travels(tmp_path: Path, ranks: Any) -> None:
    def make() -> Any:
        return MinValueTrigger("v", (2, "iteration"))

    undisturbed = on_ranks(2, lambda group: fired_on(group, make(), ranks))
    for killed_after in (1, 5, 8):
        folder, found = tmp_path / str(killed_after), []
        for until in (killed_after, len(VALUES)):
            found += on_ranks(2, lambda group: fired_on(group, make(), ranks, until, folder))[0]  # noqa: B023
        assert found == undisturbed[0]


def test_rank_0_decides_what_the_ranks_could_see_differently() -> None:
    def work(group: ThreadGroup) -> list[int]:
        notes = AsksItself(lambda trainer: trainer.updater.state.iteration % (2 + group.rank) == 0)
        Trainer(CountingUpdater(), (9, "iteration"), group=group, extensions=[notes]).run()
        return notes.fired

    assert on_ranks(2, work) == [[2, 4, 6, 8], [2, 4, 6, 8]]


@pytest.mark.parametrize(
    ("outer", "expected"),
    [
        ((1, "iteration"), [6, 9]),  # asked at 3, 6, 9 and 12
        ((4, "iteration"), [8, 12]),  # asked at 4, 8 and 12
        ((5, "iteration"), [5, 10]),
    ],
)
def test_time_is_agreed_on_now_and_then_and_no_boundary_is_lost(outer: Any, expected: list[int]) -> None:
    def work(group: ThreadGroup) -> list[int]:
        notes, updater = AsksItself(TimeTrigger(4.5)), CountingUpdater()
        # A second per iteration on rank 0; the other clock would say something else.
        clock = lambda: updater.state.iteration * (1.0 if group.rank == 0 else 7.0)  # noqa: E731
        trainer = Trainer(updater, (13, "iteration"), group=group, agree_every=3, clock=clock)
        trainer.extend(notes, trigger=outer)
        trainer.run()
        return notes.fired

    assert on_ranks(2, work) == [expected, expected]


def test_ranks_with_other_triggers_inside_are_refused_before_they_wait_for_each_other() -> None:
    def work(group: ThreadGroup) -> str:
        trainer = Trainer(CountingUpdater(), (9, "iteration"), group=group)
        trainer.extend(AsksItself(MinValueTrigger("v", (1 + group.rank, "iteration"))))
        with pytest.raises(StateError) as raised:
            trainer.run()
        return str(raised.value)

    for said in on_ranks(2, work):
        assert "inside it MinValueTrigger('v', IntervalTrigger(2, 'iteration'))" in said
