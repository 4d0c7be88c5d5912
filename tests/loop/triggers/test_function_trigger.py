from __future__ import annotations

import pytest
from rank_threads import on_ranks

from ostinato.loop import FunctionTrigger, IntervalTrigger, MinValueTrigger, from_counters


def test_the_function_is_asked_only_when_the_inner_trigger_fires(stand_in) -> None:
    asked = []

    def answer(*given, **named):
        asked.append((given, named))
        return "yes"

    trigger = FunctionTrigger(answer, [1, 2], {"c": 3}, (2, "iteration"))
    trigger.initialize(stand_in())
    fired = [trigger(stand_in(iteration=iteration)) for iteration in range(1, 5)]
    assert fired == [False, True, False, True]
    assert asked == [((1, 2), {"c": 3})] * 2


def test_the_memory_of_the_inner_trigger_is_saved(stand_in) -> None:
    trigger = FunctionTrigger(lambda: True, trigger=(5, "iteration"))
    trigger.initialize(stand_in(iteration=4))
    again = FunctionTrigger(lambda: True, trigger=(5, "iteration"))
    again.load_state_dict(trigger.state_dict())
    assert again(stand_in(iteration=5))


def test_the_answer_of_rank_0_counts_unless_the_function_is_of_the_counters() -> None:
    assert FunctionTrigger(lambda: True).decided == "ranks"
    assert FunctionTrigger(from_counters(lambda: True)).decided == "counters"
    assert FunctionTrigger(lambda: True, trigger=MinValueTrigger("v")).decided == "ranks"


def test_with_an_inner_trigger_that_all_ranks_ask_the_function_is_asked_on_rank_0(stand_in) -> None:
    def work(group):
        trainer = stand_in()
        trainer.group = group
        asked = []
        trigger = FunctionTrigger(lambda: bool(asked.append(1)) or len(asked) == 2, trigger=MinValueTrigger("v", "1it"))
        trigger.initialize(trainer)
        fired = []
        for iteration, value in enumerate([3, 4, 2, 1], start=1):
            trainer.updater.state.iteration = iteration
            trainer.observation = {"v": value}
            fired.append(trigger(trainer))
        return fired, len(asked)

    assert on_ranks(2, work) == [([False, False, True, False], 3), ([False, False, True, False], 0)]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((3,), "fn must be a function, not 3"),
        ((print, "ab"), "args must be a list"),
        ((print, 5), "args must be a list"),
        ((print, [], [1]), "kwargs must be a mapping"),
        ((print, [], {}, 5), "is not a trigger"),
    ],
)
def test_bad_arguments_are_refused(arguments, match) -> None:
    with pytest.raises(TypeError, match=match):
        FunctionTrigger(*arguments)


def test_its_text_names_the_function() -> None:
    assert repr(FunctionTrigger(print, trigger=IntervalTrigger(2, "epoch"))) == (
        "FunctionTrigger(print, IntervalTrigger(2, 'epoch'))"
    )
