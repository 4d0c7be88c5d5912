"""One trigger object in several places."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.loop import IntervalTrigger, OnceTrigger, Trainer
from ostinato.loop.shared_trigger import triggers_of_run


def run(counting_updater, triggers: dict[str, Any], iterations: int = 12) -> dict[str, list[int]]:
    fired: dict[str, list[int]] = {name: [] for name in triggers}
    trainer = Trainer(counting_updater(), (iterations, "iteration"))
    for name, trigger in triggers.items():
        trainer.extend(lambda t, mine=fired[name]: mine.append(t.updater.state.iteration), name=name, trigger=trigger)
    trainer.run()
    return fired


def test_a_part_of_a_combination_that_also_stands_alone_answers_both_alike(counting_updater) -> None:
    shared, other = IntervalTrigger(3, "iteration"), IntervalTrigger(4, "iteration")
    both = shared & other
    fired = run(counting_updater, {"either": shared | other, "alone": shared, "both": both, "nested": both | other})
    assert fired == {"either": [3, 4, 6, 8, 9, 12], "alone": [3, 6, 9, 12], "both": [12], "nested": [4, 8, 12]}


def test_a_combination_given_to_two_extensions_asks_its_parts_once(counting_updater) -> None:
    combined = IntervalTrigger(5, "iteration") | OnceTrigger()
    assert run(counting_updater, {"a": combined, "b": combined}) == {"a": [1, 5, 10], "b": [1, 5, 10]}


def test_a_combination_is_as_it_was_when_the_run_has_ended(counting_updater) -> None:
    shared, other = IntervalTrigger(3, "iteration"), IntervalTrigger(4, "iteration")
    either = shared | other
    run(counting_updater, {"either": either, "alone": shared}, iterations=7)
    assert either.parts == [shared, other]
    assert either.state_dict()["parts"][0]["baseline"] == 7


def test_what_stands_in_for_a_part_is_saved_and_shown_as_the_part() -> None:
    shared, other = IntervalTrigger(3, "iteration"), IntervalTrigger(4, "iteration")
    either = shared | other
    before = repr(either), either.state_dict()
    with triggers_of_run([either, shared], lambda trainer: False):
        assert either.parts[0] is not shared
        assert (repr(either), either.state_dict()) == before


def test_a_plain_function_is_asked_every_time(counting_updater) -> None:
    asked = []

    def trigger(trainer: Any) -> bool:
        return bool(asked.append(trainer.updater.state.iteration))

    run(counting_updater, {"a": trigger, "b": trigger}, iterations=2)
    assert asked == [1, 1, 2, 2]


@given(
    periods=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    uses=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=5),
)
def test_every_place_sees_every_firing_however_triggers_are_shared(counting_updater, periods, uses) -> None:
    leaves = [IntervalTrigger(period, "iteration") for period in periods]
    triggers: dict[str, Any] = {}
    expected: dict[str, list[int]] = {}
    for number, choice in enumerate(uses):
        chosen = [index % len(leaves) for index in choice]
        trigger: Any = leaves[chosen[0]]
        for index in chosen[1:]:
            trigger = trigger | leaves[index]
        triggers[f"e{number}"] = trigger
        expected[f"e{number}"] = [i for i in range(1, 13) if any(i % periods[index] == 0 for index in chosen)]
    assert run(counting_updater, triggers) == expected


def test_attributes_of_the_real_trigger_are_reached_and_missing_ones_are_errors() -> None:
    shared = IntervalTrigger(3, "iteration")
    with triggers_of_run([shared, shared], lambda trainer: False) as ((first, second), _):
        assert first is second
        assert first.period == 3
        with pytest.raises(AttributeError):
            first.no_such_thing  # noqa: B018
