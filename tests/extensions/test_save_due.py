from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rank_threads import ThreadGroup, on_ranks

from ostinato.dist import Alone
from ostinato.dist.per_rank import RankStates
from ostinato.extensions.save_due import SaveDue
from ostinato.loop import UpdaterState
from ostinato.loop.triggers.time_trigger import TimeTrigger


def _trainer(group: Any = None) -> Any:
    return SimpleNamespace(
        updater=SimpleNamespace(state=UpdaterState()), observation={}, elapsed_time=0.0, group=group or Alone()
    )


def _step(due: SaveDue, trainer: Any, **observed: Any) -> bool:
    trainer.updater.state.iteration += 1
    trainer.observation = observed
    return due(trainer)


def _due_at(due: SaveDue, trainer: Any, iterations: int) -> list[int]:
    return [number for number in range(1, iterations + 1) if _step(due, trainer)]


def test_a_request_fires_once_it_is_made() -> None:
    due, trainer = SaveDue((100, "iteration")), _trainer()
    due.initialize(trainer)
    assert not _step(due, trainer)
    due.is_requested = True
    assert _step(due, trainer)


def test_a_snapshot_is_due_by_its_own_trigger_and_makes_a_save_due() -> None:
    due, trainer = SaveDue((4, "iteration"), (6, "iteration")), _trainer()
    due.initialize(trainer)
    fired = {}
    for number in range(1, 13):
        if _step(due, trainer):
            fired[number] = due.is_snapshot_due
    assert fired == {4: False, 6: True, 8: False, 12: True}


@pytest.mark.parametrize("number", [1, 255, 256, 257, 700])
def test_the_watched_values_are_summed_up_and_given_back(number: int) -> None:
    due, trainer = SaveDue((1000, "iteration"), monitor="loss"), _trainer()
    for index in range(number):
        _step(due, trainer, loss=torch.tensor(float(index)) if index % 2 else float(index))
    assert due.take() == (sum(range(number)), number)
    assert due.take() == (0.0, 0)
    due.give_back(3.0, 2)
    _step(due, trainer, loss=1.0)
    _step(due, trainer, other=1.0)
    assert due.take() == (4.0, 3)


def test_what_it_remembers_survives() -> None:
    due, trainer = SaveDue((4, "iteration"), (6, "iteration"), "loss"), _trainer()
    due.initialize(trainer)
    for _ in range(5):
        _step(due, trainer, loss=torch.tensor(2.0))
    again = SaveDue((4, "iteration"), (6, "iteration"), "loss")
    again.load_state_dict(due.state_dict())
    again.initialize(trainer)
    assert again.take() == (10.0, 5)
    assert _due_at(again, trainer, 3) == [1, 3]  # iterations 6 and 8


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 1), (1, 2), (3, 2), (2, 3)])
def test_the_sums_of_all_ranks_go_on_on_any_number_of_ranks(before: int, after: int) -> None:
    def save(group: ThreadGroup) -> Any:
        due, trainer = SaveDue((100, "iteration"), monitor="loss"), _trainer(group)
        due.initialize(trainer)
        for number in range(3):
            _step(due, trainer, loss=float(10 * group.rank + number))
        return due.state_dict()

    states = on_ranks(before, save)
    if before > 1:
        saved = [state["of_ranks"].state for state in states]
        state = {**states[0], "of_ranks": RankStates(before, lambda rank: saved[rank])}
    else:
        state = states[0]

    def load(group: ThreadGroup) -> tuple[float, int]:
        due, trainer = SaveDue((100, "iteration"), monitor="loss"), _trainer(group)
        due.load_state_dict(state)
        due.initialize(trainer)
        return due.take()

    sums = on_ranks(after, load)
    assert sum(total for total, _ in sums) == sum(10 * rank + number for rank in range(before) for number in range(3))
    assert sum(count for _, count in sums) == 3 * before
    if before == after:
        assert sums == [(30.0 * rank + 3, 3) for rank in range(before)]


def test_what_follows_from_the_counters_needs_few_messages() -> None:
    def work(group: ThreadGroup) -> tuple[list[int], int]:
        due, trainer = SaveDue((7, "iteration"), monitor="loss"), _trainer(group)
        due.initialize(trainer)
        return _due_at(due, trainer, 99), len(group.calls)

    assert on_ranks(2, work) == [(list(range(7, 99, 7)), 9)] * 2


def test_time_is_that_of_rank_0_and_agreed_on_now_and_then() -> None:
    def work(group: ThreadGroup) -> list[int]:
        due, trainer = SaveDue(TimeTrigger(10)), _trainer(group)
        trainer.agree_every = 5
        due.initialize(trainer)
        fired = []
        for number in range(1, 41):
            trainer.elapsed_time = number * (1.0 if group.rank == 0 else 7.0)
            if _step(due, trainer):
                fired.append(number)
        return fired

    assert on_ranks(2, work) == [[10, 20, 30, 40]] * 2


def test_an_answer_between_two_agreements_is_not_lost() -> None:
    def work(group: ThreadGroup) -> list[int]:
        due, trainer = SaveDue(TimeTrigger(3)), _trainer(group)
        trainer.agree_every = 10
        due.initialize(trainer)
        fired = []
        for number in range(1, 31):
            trainer.elapsed_time = float(min(number, 4))
            if _step(due, trainer):
                fired.append(number)
        return fired

    assert on_ranks(3, work) == [[10]] * 3


@pytest.mark.parametrize("asking", [0, 1])
def test_a_request_of_any_rank_is_one_of_all(asking: int) -> None:
    def work(group: ThreadGroup) -> list[int]:
        due, trainer = SaveDue((1000, "iteration")), _trainer(group)
        due.initialize(trainer)
        fired = []
        for number in range(1, 31):
            if number == 13 and group.rank == asking:
                due.is_requested = True
            if _step(due, trainer):
                fired.append(number)
                due.is_requested = False
        return fired

    assert on_ranks(2, work) == [[20]] * 2


def test_of_a_pair_the_value_counts_and_what_is_no_number_is_left_out_with_one_warning(caplog: Any) -> None:
    due = SaveDue((1, "epoch"), monitor="loss")
    for value in (2.0, (4.0, 7), torch.zeros(3), "much", None, (torch.tensor(6.0), torch.tensor(2.0))):
        due.add(value)
    assert due.take() == (12.0, 3)
    assert [record.message for record in caplog.records] == ["the watched value 'loss' is left out, it is not a number"]
