from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_stand_ins import CountingUpdater, ListOfSnapshots
from rank_threads import on_ranks

from ostinato.loop import ThresholdTrigger, Trainer, report


def answers(trigger, values, trainer):
    trigger.initialize(trainer)
    found = []
    for value in values:
        trainer.updater.state.iteration += 1
        trainer.observation = {} if value is None else {"v": value}
        found.append(trigger(trainer))
    return found


@given(values=st.lists(st.integers(0, 9), min_size=1, max_size=20), threshold=st.integers(0, 9), greatest=st.booleans())
def test_it_is_true_from_the_first_value_on_that_reaches_it(stand_in, values, threshold, greatest) -> None:
    trigger = ThresholdTrigger("v", threshold, "max" if greatest else "min", (1, "iteration"))
    reached = [value >= threshold if greatest else value <= threshold for value in values]
    expected = [any(reached[: place + 1]) for place in range(len(values))]
    assert answers(trigger, values, stand_in()) == expected
    assert trigger.stopped == expected[-1]


def test_it_looks_at_the_mean_of_the_interval(stand_in) -> None:
    trigger = ThresholdTrigger("v", 2, "min", (2, "iteration"))
    assert answers(trigger, [1, 5, 1, 3, 9, 9], stand_in()) == [False, False, False, True, True, True]


def test_nan_and_nothing_reach_nothing(stand_in) -> None:
    trigger = ThresholdTrigger("v", 0, "max", (1, "iteration"))
    assert answers(trigger, [math.nan, None, -1, 0], stand_in()) == [False, False, False, True]


def test_the_name_says_whether_more_is_better() -> None:
    assert ThresholdTrigger("accuracy", 0.9).mode == "max"
    assert ThresholdTrigger("loss", 0.1).mode == "min"


class Falling(CountingUpdater):
    def update(self) -> None:
        report("v", 10 - self.state.iteration)
        super().update()


def test_a_run_that_was_stopped_stays_stopped_unless_the_threshold_was_moved_on() -> None:
    kept: list = []

    def run(threshold):
        trainer = Trainer(Falling(), ThresholdTrigger("v", threshold, trigger="1it"))
        trainer.extend(ListOfSnapshots(kept), trigger=(1, "iteration"))
        trainer.run()
        return trainer.updater.state.iteration

    assert run(7) == 4
    assert run(7) == 4
    assert run(8) == 4
    assert run(5) == 6


def test_all_ranks_stop_by_the_mean(stand_in) -> None:
    def work(group):
        trainer = stand_in()
        trainer.group = group
        return answers(ThresholdTrigger("v", 2, trigger="1it"), [[4, 3, 1], [2, 2, 2]][group.rank], trainer)

    assert on_ranks(2, work) == [[False, False, True]] * 2


@pytest.mark.parametrize(
    ("arguments", "kind", "match"),
    [
        (("v", math.inf), ValueError, "threshold must be finite, not inf"),
        (("v", "3"), TypeError, "threshold must be a number, not '3'"),
        (("v", True), TypeError, "threshold must be a number, not True"),
        (("v", 3, "least"), ValueError, "mode is 'least'"),
        (("", 3), ValueError, "key is empty"),
        (("v", 3, "min", "soon"), ValueError, "'soon' is not a time"),
    ],
)
def test_bad_arguments_are_refused(arguments, kind, match) -> None:
    with pytest.raises(kind, match=match):
        ThresholdTrigger(*arguments)
