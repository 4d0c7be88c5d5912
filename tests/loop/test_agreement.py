"""Ranks, here as threads, decide alike."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_threads import ThreadGroup, on_threads

from ostinato.errors import RankFailedError
from ostinato.loop import Extension, IntervalTrigger, LimitTrigger, OnceTrigger, TimeTrigger, Trainer, report
from ostinato.loop.triggers import from_counters


def trainer_of(counting_updater, group: ThreadGroup, stop: Any, **settings: Any) -> Trainer:
    return Trainer(counting_updater(), stop, group=group, **settings)


def noting(fired: list[int]) -> Any:
    return lambda trainer: fired.append(trainer.updater.state.iteration)


def test_decisions_from_counters_need_no_message(counting_updater) -> None:
    def rank(group: ThreadGroup) -> tuple[list[str], list[int]]:
        fired: list[int] = []
        trainer = trainer_of(counting_updater, group, (8, "iteration"), agree_every=10**9)
        trainer.extend(noting(fired), "a", trigger=IntervalTrigger(3, "iteration") | OnceTrigger())
        trainer.extend(noting(fired), "b", trigger=from_counters(lambda t: t.updater.state.iteration == 5))
        trainer.run()
        return group.calls, fired

    for calls, fired in on_threads(rank, 3):
        assert fired == [1, 3, 5, 6]
        assert calls == [
            "gather",
            "gather",
            "gather",
            "sum_of",
        ]  # registrations, counters, lengths, the first stop check


def test_rank_0_decides_for_plain_functions_which_the_others_do_not_ask(counting_updater) -> None:
    def rank(group: ThreadGroup) -> tuple[list[int], list[int], list[int]]:
        asked: list[int] = []
        early: list[int] = []
        late: list[int] = []

        def decide(trainer: Any) -> bool:
            asked.append(trainer.updater.state.iteration)
            return trainer.updater.state.iteration % 3 == 0

        trainer = trainer_of(counting_updater, group, (7, "iteration"))
        trainer.extend(noting(early), "early", trigger=decide)
        trainer.extend(noting(late), "late", trigger=decide, priority=-100)
        trainer.run()
        return asked, early, late

    first, second = on_threads(rank)
    assert first == ([i for i in range(1, 8) for _ in range(2)], [3, 6], [3, 6])
    assert second == ([], [3, 6], [3, 6])


def test_everything_due_in_an_iteration_travels_in_one_message(counting_updater) -> None:
    def rank(group: ThreadGroup) -> list[int]:
        messages: list[int] = []
        trainer = trainer_of(counting_updater, group, lambda t: t.updater.state.iteration == 8, agree_every=2)
        trainer.extend(lambda t: None, "a", trigger=lambda t: True)
        trainer.extend(lambda t: None, "b", trigger=TimeTrigger(1))
        trainer.extend(lambda t: None, "c", trigger=(lambda t: True), priority=-100)
        trainer.extend(lambda t: messages.append(group.calls.count("sum_of")), "count", priority=-200)
        trainer.run()
        return messages

    assert on_threads(rank) == [[2, 3, 4, 5, 6, 7, 8, 9]] * 2  # the first one is that of the check before all updates


def test_a_stop_trigger_sees_what_extensions_have_reported(counting_updater) -> None:
    def rank(group: ThreadGroup) -> tuple[int, str]:
        trainer = trainer_of(counting_updater, group, lambda t: t.observation.get("validation", 9) < 2)
        trainer.extend(lambda t: report("validation", 5 - t.updater.state.iteration), "evaluator", priority=300)
        trainer.run()
        return trainer.updater.state.iteration, trainer.status

    assert on_threads(rank) == [(4, "finished")] * 2


@pytest.mark.parametrize(("agree_every", "asked_in", "ends"), [(1, 3, 3), (4, 3, 4), (4, 4, 4), (None, 1, 10)])
@pytest.mark.parametrize("asking", [0, 1, 2])
def test_a_stop_wished_for_on_any_rank_ends_all_in_the_same_iteration(
    counting_updater, agree_every, asked_in, ends, asking
) -> None:
    def rank(group: ThreadGroup) -> tuple[Any, ...]:
        saved: list[Any] = []
        trainer = trainer_of(counting_updater, group, None, agree_every=agree_every)

        def ask(trainer: Any) -> None:
            if group.rank == asking:
                trainer.request_stop(f"rank {group.rank}")

        trainer.extend(ask, trigger=(asked_in, "iteration"))
        trainer.extend(lambda t: saved.append((t.updater.state.iteration, t.stop_reason)), "save", priority=-100)
        trainer.run()
        return trainer.updater.state.iteration, trainer.status, trainer.stop_reason, saved[-1], saved[-2][1]

    reason = f"rank {asking}"
    assert on_threads(rank, 3) == [(ends, "stopped", reason, (ends, reason), None)] * 3


def test_a_stop_wished_for_before_the_run_means_no_update_anywhere(counting_updater) -> None:
    def rank(group: ThreadGroup) -> tuple[int, str | None]:
        trainer = trainer_of(counting_updater, group, (5, "iteration"))
        if group.rank == 1:
            trainer.request_stop("early")
        trainer.run()
        return trainer.updater.state.iteration, trainer.stop_reason

    assert on_threads(rank) == [(0, "early")] * 2


@settings(max_examples=60)
@given(
    seconds=st.lists(st.lists(st.floats(0, 3), min_size=12, max_size=12), min_size=2, max_size=3),
    every=st.integers(1, 4),
    period=st.sampled_from([1, 2.5, 7]),
)
def test_time_is_that_of_rank_0_looked_at_now_and_then(counting_updater, seconds, every, period) -> None:
    def rank(group: ThreadGroup) -> dict[str, list[int]]:
        now = [0.0]
        fired: dict[str, list[int]] = {"time": [], "either": [], "both": []}

        class Slow(counting_updater):
            def update(self) -> None:
                now[0] += seconds[group.rank][self.state.iteration]
                super().update()

        trainer = Trainer(Slow(), (12, "iteration"), group=group, agree_every=every, clock=lambda: now[0])
        fives = IntervalTrigger(5, "iteration")
        trainer.extend(noting(fired["time"]), "time", trigger=TimeTrigger(period))
        trainer.extend(noting(fired["either"]), "either", trigger=TimeTrigger(period) | fives, priority=-100)
        trainer.extend(noting(fired["both"]), "both", trigger=TimeTrigger(period) & IntervalTrigger(1, "iteration"))
        trainer.run()
        return fired

    elapsed, boundaries, expected = 0.0, 0, []
    for iteration, took in enumerate(seconds[0], start=1):
        elapsed += took
        if iteration % every == 0 and int(elapsed // period) > boundaries:
            boundaries = int(elapsed // period)
            expected.append(iteration)
    with_fives = sorted({*expected, 5, 10})
    assert on_threads(rank, len(seconds)) == [{"time": expected, "either": with_fives, "both": expected}] * len(seconds)


def test_a_time_limit_ends_all_ranks_in_the_same_iteration(counting_updater) -> None:
    def rank(group: ThreadGroup) -> int:
        now = [0.0]

        class Slow(counting_updater):
            def update(self) -> None:
                now[0] += 1.0 + group.rank
                super().update()

        limit = LimitTrigger(7, "second")
        trainer = Trainer(Slow(), limit, group=group, agree_every=3, clock=lambda: now[0])
        trainer.run()
        return trainer.updater.state.iteration

    assert on_threads(rank) == [9, 9]


def test_a_decision_that_fails_on_rank_0_fails_everywhere_and_says_which(counting_updater, caplog) -> None:
    def rank(group: ThreadGroup) -> None:
        def decide(trainer: Any) -> bool:
            raise KeyError("loss")

        trainer = trainer_of(counting_updater, group, (5, "iteration"))
        trainer.extend(lambda t: None, "plot", trigger=decide)
        trainer.run()

    first, second = on_threads(rank)
    assert isinstance(first, KeyError)
    assert any("decide" in note for note in first.__notes__)
    assert isinstance(second, RankFailedError)
    assert second.fields["rank"] == 0


def test_after_an_error_hooks_are_called_and_may_not_wait_for_the_others(counting_updater, caplog) -> None:
    def rank(group: ThreadGroup) -> Any:
        class Talks(Extension):
            def __call__(self, trainer: Any) -> None:
                if group.rank == 1 and trainer.updater.state.iteration == 3:
                    raise ValueError("only here")

            def on_error(self, trainer: Any, error: BaseException, traceback: Any) -> None:
                trainer.group.gather("saved?")

            def finalize(self, trainer: Any) -> None:
                trainer.group.barrier()

        trainer = trainer_of(counting_updater, group, (20, "iteration"))
        trainer.extend(Talks(), "talks")
        trainer.run()

    first, second = on_threads(rank)
    assert isinstance(first, RankFailedError)
    assert first.fields["rank"] == 1
    assert isinstance(second, ValueError)
    for error in (first, second):
        assert [note for note in error.__notes__ if "the ranks no longer meet, and gather() waits" in note]
        assert [note for note in error.__notes__ if "the ranks no longer meet, and barrier() waits" in note]


def test_a_finalizer_that_fails_on_one_rank_lets_go_of_the_others(counting_updater) -> None:
    def rank(group: ThreadGroup) -> None:
        class Ends(Extension):
            def __call__(self, trainer: Any) -> None: ...

            def finalize(self, trainer: Any) -> None:
                if group.rank == 0:
                    raise OSError("disk full")
                trainer.group.barrier()

        trainer_of(counting_updater, group, (1, "iteration"), extensions=[Ends()]).run()

    logging.disable(logging.CRITICAL)
    try:
        first, second = on_threads(rank)
    finally:
        logging.disable(logging.NOTSET)
    assert isinstance(first, OSError)
    assert isinstance(second, RankFailedError)


@pytest.mark.parametrize(("value", "kind"), [(0, ValueError), (-3, ValueError), (2.0, TypeError), (True, TypeError)])
def test_how_often_to_agree_must_be_a_whole_number_from_1(counting_updater, value, kind) -> None:
    with pytest.raises(kind, match=f"agree_every must be .*, not {value}"):
        Trainer(counting_updater(), None, agree_every=value)
