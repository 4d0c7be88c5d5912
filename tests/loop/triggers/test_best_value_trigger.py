from __future__ import annotations

import json
import logging
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_stand_ins import CountingUpdater, ListOfSnapshots
from rank_threads import on_ranks

from ostinato.loop import BestValueTrigger, MaxValueTrigger, MinValueTrigger, Trainer, from_counters, report

pairs = st.lists(st.one_of(st.none(), st.tuples(st.integers(-5, 5), st.integers(1, 3))), min_size=1, max_size=30)


def fired_at(trigger, observations, trainer):
    trigger.initialize(trainer)
    fired = []
    for observation in observations:
        trainer.updater.state.iteration += 1
        trainer.observation = observation
        if trigger(trainer):
            fired.append(trainer.updater.state.iteration)
    return fired


@given(pairs=pairs, period=st.integers(1, 4), greatest=st.booleans())
def test_it_fires_at_the_means_that_exact_arithmetic_finds_better(stand_in, pairs, period, greatest) -> None:
    expected, best = [], None
    for end in range(period, len(pairs) + 1, period):
        interval = [pair for pair in pairs[end - period : end] if pair is not None]
        if not interval:
            continue
        mean = Fraction(sum(value * weight for value, weight in interval), sum(weight for _, weight in interval))
        if best is None or (mean > best if greatest else mean < best):
            best = mean
            expected.append(end)
    trigger = (MaxValueTrigger if greatest else MinValueTrigger)("v", (period, "iteration"))
    observations = [{} if pair is None else {"v": pair} for pair in pairs]
    assert fired_at(trigger, observations, stand_in()) == expected
    assert trigger.best == (None if best is None else float(best))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (MinValueTrigger, [math.nan, 3, 2, math.nan, math.inf, 1]),
        (MaxValueTrigger, [math.nan, -3, -2, math.nan, -math.inf, -1]),
    ],
)
@pytest.mark.parametrize("resume_after", range(6))
def test_nan_never_wins_and_never_blocks(stand_in, kind, values, resume_after) -> None:
    trainer = stand_in()
    trigger = kind("v", (1, "iteration"))
    observations = [{"v": value} for value in values]
    fired = fired_at(trigger, observations[:resume_after], trainer)
    resumed = kind("v", (1, "iteration"))
    resumed.load_state_dict(json.loads(json.dumps(trigger.state_dict())))
    assert fired + fired_at(resumed, observations[resume_after:], trainer) == [2, 3, 6]


def test_the_comparison_may_be_the_callers(stand_in) -> None:
    trigger = BestValueTrigger("v", lambda best, new: abs(new) < abs(best), (1, "iteration"))
    assert fired_at(trigger, [{"v": value} for value in (-3, 4, 2, -2, -1)], stand_in()) == [1, 3, 5]


def test_the_inner_trigger_may_be_of_any_kind(stand_in) -> None:
    trigger = MinValueTrigger("v", "2it")
    assert fired_at(trigger, [{"v": value} for value in (5, 3, 1, 1)], stand_in()) == [2, 4]

    @from_counters
    def in_the_third(trainer):
        return trainer.updater.state.iteration == 3

    assert fired_at(MinValueTrigger("v", in_the_third), [{"v": 1}] * 5, stand_in()) == [3]


def test_the_memory_of_another_key_is_dropped_and_this_is_said(stand_in, caplog) -> None:
    trigger = MinValueTrigger("v", (1, "iteration"))
    fired_at(trigger, [{"v": 1}], stand_in())
    other = MinValueTrigger("w", (1, "iteration"))
    with caplog.at_level(logging.WARNING):
        other.load_state_dict(trigger.state_dict())
    assert other.best is None
    assert "MinValueTrigger('w', IntervalTrigger(1, 'iteration')) starts fresh" in caplog.text
    assert "key 'v'" in caplog.text


def test_the_memory_of_a_later_version_is_refused() -> None:
    trigger = MinValueTrigger("v")
    with pytest.raises(ValueError, match="has format 99; this version reads format 1"):
        trigger.load_state_dict({**trigger.state_dict(), "format": 99})


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("v", (1, "iter")), ValueError),
        (("v", (0, "epoch")), ValueError),
        (("v", 5), TypeError),
        (("v", "5"), ValueError),
        (("",), ValueError),
        ((7,), TypeError),
    ],
)
def test_bad_arguments_are_refused(arguments, kind) -> None:
    for made in (MinValueTrigger, MaxValueTrigger):
        with pytest.raises(kind):
            made(*arguments)
    with pytest.raises(TypeError, match="compare must be a function"):
        BestValueTrigger("v", (1, "epoch"))  # type: ignore[arg-type]


def test_all_ranks_decide_by_the_weighted_mean_and_talk_only_when_it_is_time(stand_in) -> None:
    # Alone, rank 0 would see 1, 2, 3 and rank 1 would see 9, 5, 0; the means by weight are 7, 4.25 and 0.75.
    by_rank = [[(1, 1), (2, 1), (3, 1)], [(9, 3), (5, 3), (0, 3)]]

    def work(group):
        trainer = stand_in()
        trainer.group = group
        observations = [{"v": pair} for pair in by_rank[group.rank] for _ in range(10)]
        trigger = MinValueTrigger("v", (10, "iteration"))
        return fired_at(trigger, observations, trainer), trigger.best, len(group.calls)

    assert on_ranks(2, work) == [([10, 20, 30], 0.75, 3)] * 2


def test_a_rank_without_a_value_follows_the_others(stand_in) -> None:
    def work(group):
        trainer = stand_in()
        trainer.group = group
        observations = [{"v": 3 - number} if group.rank == 1 else {} for number in range(3)]
        return fired_at(MinValueTrigger("v", (1, "iteration")), observations, trainer)

    assert on_ranks(3, work) == [[1, 2, 3]] * 3


def test_ranks_agree_on_an_inner_trigger_that_is_not_of_the_counters(stand_in) -> None:
    def work(group):
        trainer = stand_in()
        trainer.group = group
        trigger = MinValueTrigger("v", lambda trainer: trainer.updater.state.iteration % (2 + group.rank) == 0)
        return fired_at(trigger, [{"v": 10 - number} for number in range(6)], trainer)

    assert on_ranks(2, work) == [[2, 4, 6]] * 2  # the answers of rank 0


@pytest.mark.parametrize("killed_after", range(1, 12))
def test_a_run_that_is_killed_fires_where_an_undisturbed_one_does(killed_after) -> None:
    values = [5, 4, 4, 3, math.nan, 6, 2, 2, 1, 7, 0, 0]

    class Updater(CountingUpdater):
        def update(self) -> None:
            report("v", values[self.state.iteration])
            super().update()

    def process(kept, until):
        fired = []
        trainer = Trainer(Updater(), (until, "iteration"))
        trainer.extend(
            lambda t: fired.append(t.updater.state.iteration), name="best", trigger=MinValueTrigger("v", "2it")
        )
        trainer.extend(ListOfSnapshots(kept), trigger=(1, "iteration"))
        trainer.run()
        return fired

    kept = []
    assert process(kept, killed_after) + process(kept, len(values)) == process([], len(values))
