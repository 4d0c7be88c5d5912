from __future__ import annotations

from typing import Any

import pytest
from loop_stand_ins import CountingUpdater

from ostinato.extensions.inner_trigger import InnerTrigger
from ostinato.loop import Extension, IntervalTrigger, Trainer


class Notes(Extension):
    """Notes at which iterations its inner trigger fires."""

    def __init__(self, trigger: Any) -> None:
        self.inner = InnerTrigger(trigger)
        self.fired: list[int] = []

    def initialize(self, trainer: Any) -> None:
        self.inner.initialize(trainer)

    def __call__(self, trainer: Any) -> None:
        if self.inner(trainer):
            self.fired.append(trainer.updater.state.iteration)


def test_one_trigger_object_serves_two_extensions() -> None:
    trigger = IntervalTrigger(2, "iteration")
    first, second, third = Notes(trigger), Notes(trigger), Notes((2, "iteration"))
    trainer = Trainer(CountingUpdater(), (5, "iteration"), extensions=[first, second, third])
    trainer.run()
    assert first.fired == second.fired == third.fired == [2, 4]


def test_a_function_is_asked_every_time_and_none_never_fires() -> None:
    first, second = Notes(lambda trainer: trainer.updater.state.iteration == 3), Notes(None)
    Trainer(CountingUpdater(), (5, "iteration"), extensions=[first, second]).run()
    assert (first.fired, second.fired) == ([3], [])
    assert InnerTrigger(None).state_dict() == {}


def test_the_memory_of_the_trigger_travels() -> None:
    notes = Notes((10, "iteration"))
    Trainer(CountingUpdater(), (7, "iteration"), extensions=[notes]).run()
    assert notes.inner.state_dict() == {"unit": "iteration", "baseline": 7}
    inner = InnerTrigger((10, "iteration"))
    inner.load_state_dict({"unit": "iteration", "baseline": 3})
    assert inner.state_dict()["baseline"] == 3


@pytest.mark.parametrize(("argument", "error"), [(5, TypeError), ((0, "iteration"), ValueError), ("10", ValueError)])
def test_what_is_no_trigger_is_refused(argument: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        InnerTrigger(argument)
