from __future__ import annotations

import json
import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_stand_ins import CountingUpdater, ListOfSnapshots
from rank_threads import on_ranks

from ostinato.loop import EarlyStoppingTrigger, Trainer, report


def stopping(patience=2, **settings):
    settings = {"check_trigger": (1, "iteration"), "monitor": "l", "max_trigger": None, **settings}
    return EarlyStoppingTrigger(patience=patience, **settings)


def answers(trigger, values, trainer):
    trigger.initialize(trainer)
    found = []
    for value in values:
        trainer.updater.state.iteration += 1
        trainer.observation = {} if value is None else {"l": value}
        found.append(trigger(trainer))
        if found[-1]:
            break
    return found


@given(
    values=st.lists(st.integers(0, 6), min_size=1, max_size=30),
    patience=st.integers(1, 4),
    min_delta=st.integers(0, 2),
    mode=st.sampled_from(["min", "max"]),
)
def test_it_stops_at_the_check_that_a_plain_count_finds(stand_in, values, patience, min_delta, mode) -> None:
    best, count, expected = None, 0, None
    for place, value in enumerate(values, start=1):
        gain = math.inf if best is None else (best - value if mode == "min" else value - best)
        best, count = (value, 0) if gain > min_delta else (best, count + 1)
        if count >= patience:
            expected = place
            break
    found = answers(stopping(patience, mode=mode, min_delta=min_delta), values, stand_in())
    assert (len(found) if found[-1] else None) == expected


def test_a_value_reported_between_the_checks_counts(stand_in) -> None:
    # Reported at odd iterations, checked at even ones.
    values = [1, None, 1, None, 1, None]
    assert answers(stopping(check_trigger=(2, "iteration")), values, stand_in()) == [False] * 5 + [True]


def test_an_interval_without_a_value_changes_nothing_and_is_said_once(stand_in, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        trigger = stopping(patience=1)
        assert answers(trigger, [1, None, None, None, 1], stand_in()) == [False] * 4 + [True]
    assert len(caplog.records) == 1
    assert "no 'l' since the last check" in caplog.text


def test_the_name_says_whether_more_is_better() -> None:
    assert EarlyStoppingTrigger(monitor="main/loss").mode == "min"
    assert EarlyStoppingTrigger(monitor="validation/accuracy").mode == "max"
    assert EarlyStoppingTrigger(monitor="validation/accuracy", mode="min").mode == "min"


def test_the_limit_of_the_run_is_a_limit(stand_in) -> None:
    trigger = stopping(max_trigger="3it")
    assert answers(trigger, [5, 4, 3], stand_in()) == [False, False, True]
    assert not trigger.stopped
    assert trigger(stand_in(iteration=7))


class Reporting(CountingUpdater):
    """Reports a loss that has its least at iteration 4."""

    def update(self) -> None:
        report("l", abs(self.state.iteration + 1 - 4))
        super().update()


def run(kept, trigger, until=None):
    trainer = Trainer(Reporting(), trigger if until is None else [trigger, (until, "iteration")])
    trainer.extend(ListOfSnapshots(kept), trigger=(1, "iteration"))
    trainer.run()
    return trainer.updater.state.iteration


@pytest.mark.parametrize("killed_after", range(1, 10))
def test_a_resumed_run_stops_where_an_undisturbed_one_does(killed_after) -> None:
    kept: list = []
    run(kept, stopping(patience=5), until=killed_after)
    # The trigger's memory sits in the list of stop triggers, so the next process has the same list.
    assert run(kept, stopping(patience=5), until=100) == 9


def test_a_run_that_was_stopped_stays_stopped_unless_it_was_granted_more() -> None:
    kept: list = []
    assert run(kept, stopping(patience=2)) == 6
    assert run(kept, stopping(patience=2)) == 6
    assert len(kept) == 6
    assert run(kept, stopping(patience=3)) == 7
    assert run(kept, stopping(patience=3, max_trigger="6it")) == 7


def test_a_limit_that_was_raised_lets_it_go_on() -> None:
    kept: list = []
    assert run(kept, stopping(patience=5, max_trigger="3it")) == 3
    assert run(kept, stopping(patience=5, max_trigger="3it")) == 3
    assert run(kept, stopping(patience=5, max_trigger="8it")) == 8


def test_the_memory_says_what_it_is(stand_in) -> None:
    trigger = stopping(patience=1)
    answers(trigger, [1, 2], stand_in())
    state = json.loads(json.dumps(trigger.state_dict()))
    assert (state["format"], state["best"], state["count"], state["stopped"]) == (1, 1.0, 1, True)
    with pytest.raises(ValueError, match="format 2"):
        stopping().load_state_dict({**state, "format": 2})


def test_the_memory_of_another_direction_is_dropped(stand_in, caplog) -> None:
    trigger = stopping(patience=1)
    answers(trigger, [1, 2], stand_in())
    other = stopping(patience=1, mode="max")
    with caplog.at_level(logging.WARNING):
        other.load_state_dict(trigger.state_dict())
    assert (other.best, other.count, other.stopped) == (-math.inf, 0, False)
    assert "mode 'min'" in caplog.text


def test_all_ranks_stop_together_by_the_mean(stand_in) -> None:
    # Rank 0 gets better all the time and rank 1 worse; the mean stands still.
    def work(group):
        trainer = stand_in()
        trainer.group = group
        slope = -1 if group.rank == 0 else 1
        return answers(stopping(patience=3), [slope * number for number in range(9)], trainer)

    assert on_ranks(2, work) == [[False, False, False, True]] * 2


def test_ranks_agree_on_a_limit_of_time(stand_in) -> None:
    def work(group):
        trainer = stand_in()
        trainer.group = group
        trigger = stopping(patience=9, max_trigger="3sec")
        trainer.elapsed_time = 2.9 if group.rank == 0 else 3.1
        first = answers(trigger, [1], trainer)
        trainer.elapsed_time = 3.0 if group.rank == 0 else 2.5
        return first + answers(trigger, [1], trainer)

    assert on_ranks(2, work) == [[False, True]] * 2


@pytest.mark.parametrize(
    ("settings", "kind", "match"),
    [
        ({"patience": 0}, ValueError, "patience must be 1 or more, not 0"),
        ({"patience": True}, TypeError, "patience must be a whole number, not True"),
        ({"patience": 1.5}, TypeError, "patience must be a whole number"),
        ({"mode": "best"}, ValueError, "mode is 'best'. Use 'auto', 'min' or 'max'"),
        ({"min_delta": -1}, ValueError, "min_delta must be 0 or more, not -1"),
        ({"min_delta": math.nan}, ValueError, "min_delta must be finite"),
        ({"min_delta": "1"}, TypeError, "min_delta must be a number"),
        ({"min_delta": True}, TypeError, "min_delta must be a number"),
        ({"monitor": ""}, ValueError, "key is empty"),
        ({"monitor": None}, TypeError, "key must be a text"),
        ({"check_trigger": (1, "iter")}, ValueError, "unit is 'iter'"),
        ({"check_trigger": 3}, TypeError, "is not a trigger"),
        ({"max_trigger": (0, "epoch")}, ValueError, "limit must be above 0"),
        ({"max_trigger": 7}, TypeError, "does not say when to stop"),
    ],
)
def test_bad_arguments_are_refused(settings, kind, match) -> None:
    with pytest.raises(kind, match=match):
        EarlyStoppingTrigger(**settings)
