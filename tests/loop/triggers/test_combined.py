from __future__ import annotations

import json

import pytest

from ostinato.loop import AllTrigger, AnyTrigger, IntervalTrigger, OnceTrigger


def run(trigger, stand_in, iterations):
    trainer = stand_in()
    trigger.initialize(trainer)
    fired = []
    for iteration in iterations:
        trainer.updater.state.iteration = iteration
        if trigger(trainer):
            fired.append(iteration)
    return fired


def test_or_fires_when_one_part_does_and_and_when_all_do(stand_in) -> None:
    two, three = IntervalTrigger(2, "iteration"), IntervalTrigger(3, "iteration")
    assert run(two | three, stand_in, range(1, 13)) == [2, 3, 4, 6, 8, 9, 10, 12]
    two, three = IntervalTrigger(2, "iteration"), IntervalTrigger(3, "iteration")
    assert run(two & three, stand_in, range(1, 13)) == [6, 12]


def test_all_parts_are_asked_even_when_the_first_has_decided(stand_in) -> None:
    asked = []
    AnyTrigger([lambda t: asked.append("a") or True, lambda t: asked.append("b") or True])(stand_in())
    AllTrigger([lambda t: asked.append("c") or False, lambda t: asked.append("d") or True])(stand_in())
    assert asked == ["a", "b", "c", "d"]


def test_the_states_of_the_parts_are_saved(stand_in) -> None:
    trigger = OnceTrigger() | IntervalTrigger(10, "iteration") | (lambda t: False)
    assert run(trigger, stand_in, [1, 2]) == [1]
    again = OnceTrigger() | IntervalTrigger(10, "iteration") | (lambda t: False)
    again.load_state_dict(json.loads(json.dumps(trigger.state_dict())))
    assert run(again, stand_in, [3, 10, 11]) == [10]


def test_what_cannot_be_called_cannot_be_combined() -> None:
    with pytest.raises(TypeError, match=r"\(1, 'epoch'\) is not a trigger and cannot be combined"):
        IntervalTrigger(2, "iteration") | (1, "epoch")


def test_its_text_has_no_address_in_it() -> None:
    def at_noon(trainer):
        return True

    class Moody:
        def __call__(self, trainer):
            return True

    shown = repr(IntervalTrigger(2, "iteration") | at_noon | Moody())
    assert "at_noon" in shown
    assert "Moody" in shown
    assert " at 0x" not in shown


@pytest.mark.parametrize("kind", [AllTrigger, AnyTrigger])
def test_nothing_cannot_be_combined(kind) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__} of no parts"):
        kind([])
