"""The trainer in a world of real processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from loop_stand_ins import CountingUpdater
from rank_processes import RankResult, run_on_ranks

from ostinato.errors import RankFailedError, StateError
from ostinato.extensions import RankLog, StopSignals
from ostinato.loop import Extension, TimeTrigger, Trainer, report
from ostinato.loop.triggers import MinValueTrigger

TIMEOUT = 200.0
"""Seconds: far more than anything here takes, so who fails does so because it was told and not because it waited."""


class ReducingUpdater(CountingUpdater):
    """Exchanges a number with the other ranks in every update, as gradients would be."""

    def update(self) -> None:
        gradient = torch.ones(3)
        torch.distributed.all_reduce(gradient)
        report("loss", float(gradient[0]))
        super().update()


def errors_of(results: list[RankResult]) -> list[str]:
    return [type(result.error).__name__ for result in results]


# --- what is compared before the first update ------------------------------------------------------------------------


def registers_otherwise(group: Any) -> None:
    updater = ReducingUpdater()
    trainer = Trainer(updater, (5, "iteration"), group=group)
    if group.rank == 0:
        trainer.extend(lambda t: None, "validation", trigger=(1, "epoch"))
    trainer.extend(lambda t: None, "snapshot", priority=-100)
    try:
        trainer.run()
    finally:
        assert updater.state.iteration == 0


def has_another_stop(group: Any) -> None:
    Trainer(ReducingUpdater(), (5 + group.rank, "iteration"), group=group).run()


def has_another_loader(group: Any) -> None:
    Trainer(ReducingUpdater(updates_per_epoch=10 + group.rank), (5, "iteration"), group=group).run()


def starts_elsewhere(group: Any) -> None:
    updater = ReducingUpdater()
    updater.state.iteration = 90 + 10 * group.rank
    Trainer(updater, (500, "iteration"), group=group).run()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (registers_otherwise, r"Rank 0 and rank 1 have registered different extensions: validation \(priority 100"),
        (has_another_stop, r"stop trigger LimitTrigger\(5, 'iteration'\).*stop trigger LimitTrigger\(6, 'iteration'\)"),
        (has_another_loader, r"loaders of the ranks differ in length: 10 batches on rank 0, 11 batches on rank 1"),
        (starts_elsewhere, r"iteration is 90 on rank 0 and 100 on rank 1"),
    ],
)
def test_a_difference_between_ranks_is_an_error_on_all_of_them_before_the_first_update(
    tmp_path, function, message
) -> None:
    results = run_on_ranks(function, folder=tmp_path, timeout=TIMEOUT)
    for result in results:
        assert isinstance(result.error, StateError), result
        assert result.exit_code == 1
        with pytest.raises(StateError, match=message):
            raise result.error


# --- one rank fails --------------------------------------------------------------------------------------------------


def fails_on_rank_1(group: Any, updater: type[CountingUpdater], iteration: int) -> None:
    class Hooks(Extension):
        def __call__(self, trainer: Any) -> None:
            if group.rank == 1 and trainer.updater.state.iteration == iteration:
                raise ValueError("the disk of rank 1 is full")

        def on_error(self, trainer: Any, error: BaseException, traceback: Any) -> None:
            Path(f"on_error {type(error).__name__}").touch()

        def finalize(self, trainer: Any) -> None:
            Path(f"finalize {trainer.status} {group.rank}").touch()

    Trainer(updater(), None, group=group, extensions=[Hooks()]).run()


def reduces_and_fails(group: Any) -> None:
    fails_on_rank_1(group, ReducingUpdater, 7)


def counts_and_fails(group: Any) -> None:
    """No update waits for another rank: who goes on learns of the failure where the ranks agree."""
    fails_on_rank_1(group, CountingUpdater, 7)


@pytest.mark.parametrize("function", [reduces_and_fails, counts_and_fails])
def test_an_error_of_one_rank_ends_the_others_and_is_shown_once(tmp_path, function) -> None:
    first, second, third = results = run_on_ranks(function, folder=tmp_path, ranks=3, timeout=TIMEOUT)
    assert errors_of(results) == ["RankFailedError", "ValueError", "RankFailedError"]
    assert [result.exit_code for result in results] == [1, 1, 1]
    for result in (first, third):
        assert "Rank 1 failed" in str(result.error)
        assert "the disk of rank 1 is full" in str(result.error)
        assert "gloo" not in result.output
        assert "all_reduce" not in result.output  # no traceback of the broken collective
    assert 'raise ValueError("the disk of rank 1 is full")' in second.output
    (place,) = tmp_path.glob("ranks_*")
    found = {path.name for path in place.iterdir()}
    assert {"on_error ValueError", "on_error RankFailedError"} <= found
    assert {f"finalize failed {rank}" for rank in range(3)} <= found


def is_killed(group: Any) -> None:
    trainer = Trainer(ReducingUpdater(), None, group=group)

    def die(trainer: Any) -> None:
        if group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    trainer.extend(die, trigger=(5, "iteration"))
    trainer.run()


def test_a_killed_rank_ends_the_others(tmp_path) -> None:
    first, second = run_on_ranks(is_killed, folder=tmp_path, timeout=TIMEOUT)
    assert (first.exit_code, second.exit_code) == (1, -signal.SIGKILL)
    assert isinstance(first.error, RankFailedError)
    assert "ended without a word" in str(first.error)
    assert "all_reduce" not in first.output


# --- extensions of rank 0 --------------------------------------------------------------------------------------------


def writes_on_rank_0(group: Any) -> tuple[int, list[int]]:
    written: list[int] = []
    trainer = Trainer(ReducingUpdater(), (25, "iteration"), group=group)

    class Writer(Extension):
        def initialize(self, trainer: Any) -> None:
            written.append(-1)

        def __call__(self, trainer: Any) -> None:
            assert (trainer.group.rank, trainer.group.size) == (0, 2)
            written.append(trainer.updater.state.iteration)

        def finalize(self, trainer: Any) -> None:
            written.append(-2)

    trainer.extend(Writer(), "writer", trigger=(10, "iteration"), ranks=0)
    trainer.extend(lambda t: t.group.barrier(), "meets", trigger=(10, "iteration"))
    trainer.run()
    return trainer.updater.state.iteration, written


def test_an_extension_of_rank_0_without_collectives_runs_there_only(tmp_path) -> None:
    first, second = run_on_ranks(writes_on_rank_0, folder=tmp_path, timeout=TIMEOUT)
    assert (first.value, second.value) == ((25, [-1, 10, 20, -2]), (25, []))


def gathers_on_rank_0(group: Any) -> None:
    trainer = Trainer(ReducingUpdater(), (25, "iteration"), group=group)
    trainer.extend(lambda t: t.group.gather(1), "evaluator", trigger=(10, "iteration"), ranks=0)
    trainer.run()


def gathers_when_initialized(group: Any) -> None:
    class Evaluator(Extension):
        name = "evaluator"

        def initialize(self, trainer: Any) -> None:
            trainer.group.gather(1)

        def __call__(self, trainer: Any) -> None: ...

    trainer = Trainer(ReducingUpdater(), (25, "iteration"), group=group)
    trainer.extend(Evaluator(), ranks=0)
    trainer.run()


def evaluates_a_wrapped_model_on_rank_0(group: Any) -> None:
    """The wrapper sends the buffers of the model in its forward pass: the next collective of the others takes them."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(3))

    class Updater(CountingUpdater):
        def update(self) -> None:
            model(torch.ones(2, 3)).sum().backward()
            super().update()

    trainer = Trainer(Updater(), (25, "iteration"), group=group)
    trainer.extend(lambda t: model.eval()(torch.ones(2, 3)), "evaluator", trigger=(10, "iteration"), ranks=0)
    trainer.run()


def reduces_functionally_on_rank_0(group: Any) -> None:
    from torch.distributed._functional_collectives import all_reduce

    def evaluate(trainer: Any) -> None:
        all_reduce(torch.ones(1), "sum", torch.distributed.group.WORLD)

    trainer = Trainer(ReducingUpdater(), (25, "iteration"), group=group)
    trainer.extend(evaluate, "evaluator", trigger=(10, "iteration"), ranks=0)
    trainer.run()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (gathers_on_rank_0, r"gather\(\) waits for all ranks"),
        (gathers_when_initialized, r"gather\(\) waits for all ranks"),
        (evaluates_a_wrapped_model_on_rank_0, "broadcast of torch.distributed waits for all ranks"),
        (reduces_functionally_on_rank_0, "all_reduce of torch.distributed waits for all ranks"),
    ],
)
def test_an_extension_of_rank_0_that_would_wait_for_the_others_is_named_instead(tmp_path, function, message) -> None:
    first, second = run_on_ranks(function, folder=tmp_path, timeout=TIMEOUT)
    with pytest.raises(StateError, match=message):
        raise first.error
    assert "Extension 'evaluator' is registered with ranks=0" in str(first.error)
    assert "ranks='all'" in str(first.error)
    assert isinstance(second.error, RankFailedError)
    assert second.error.fields["rank"] == 0
    assert "'evaluator'" in str(second.error)


# --- decisions -------------------------------------------------------------------------------------------------------


def decides(group: Any) -> dict[str, list[int]]:
    now = [0.0]
    fired: dict[str, list[int]] = {name: [] for name in ("time", "function", "value", "either")}

    class Updater(ReducingUpdater):
        def update(self) -> None:
            super().update()
            now[0] += 1.0 + 0.3 * group.rank  # the clocks drift apart
            report("mine", float(self.state.iteration * (-1) ** group.rank * (2 - group.rank)))

    trainer = Trainer(Updater(), (30, "iteration"), group=group, agree_every=2, clock=lambda: now[0])
    triggers: dict[str, Any] = {
        "time": TimeTrigger(7),
        "function": lambda t: t.observation["mine"] in (6.0, 16.0),
        "value": MinValueTrigger("mine", (10, "iteration")),
        "either": TimeTrigger(7) | MinValueTrigger("mine", (10, "iteration")),
    }
    for name, trigger in triggers.items():

        def note(trainer: Any, name: str = name) -> None:
            trainer.group.barrier()  # hangs, or meets another collective, where the ranks do not agree
            fired[name].append(trainer.updater.state.iteration)

        trainer.extend(note, name, trigger=trigger)
    trainer.run()
    return fired


def test_decisions_are_the_same_on_every_rank(tmp_path) -> None:
    results = run_on_ranks(decides, folder=tmp_path, timeout=TIMEOUT)
    assert [result.error for result in results] == [None, None]
    expected = {"time": [8, 14, 22, 28], "function": [3, 8], "value": [10], "either": [8, 10, 14, 22, 28]}
    assert [result.value for result in results] == [expected] * 2


# --- signals ---------------------------------------------------------------------------------------------------------


def runs_until_a_signal(group: Any) -> None:
    saved: list[Any] = []
    trainer = Trainer(ReducingUpdater(), None, group=group, agree_every=5)
    trainer.extend(lambda t: Path(f"running {group.rank}").touch(), "running", trigger=(20, "iteration"), priority=50)
    trainer.extend(lambda t: saved.append((t.updater.state.iteration, t.stop_reason)), "save", priority=-100)
    with StopSignals(trainer.request_stop, grace=TIMEOUT) as signals:
        trainer.run()
    reached = group.gather(trainer.updater.state.iteration)
    Path(f"ended {group.rank}").write_text(f"{trainer.status} {trainer.stop_reason} {saved[-1]} {reached}")
    raise SystemExit(signals.exit_code)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_any_one_rank_ends_all_in_the_same_iteration(tmp_path, number) -> None:
    def interrupt(processes: list[int]) -> None:
        end = time.monotonic() + 120
        while not list(tmp_path.glob("ranks_*/running 1")):
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(processes[1], number)

    first, second = run_on_ranks(runs_until_a_signal, folder=tmp_path, timeout=TIMEOUT, while_running=interrupt)
    assert (first.exit_code, second.exit_code) == (0, 128 + number), (first, second)
    (place,) = tmp_path.glob("ranks_*")
    ended = {(place / f"ended {rank}").read_text() for rank in range(2)}
    assert len(ended) == 1
    words = ended.pop().split()
    assert words[:2] == ["stopped", "signal"]
    iteration = int(words[4].strip("[,"))
    assert iteration % 5 == 0
    assert " ".join(words[2:]) == f"({iteration}, 'signal') [{iteration}, {iteration}]"


def hangs_after_a_signal(group: Any) -> None:
    def hang(trainer: Any) -> None:
        if group.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                time.sleep(60)

    trainer = Trainer(ReducingUpdater(), None, group=group, extensions=[hang])
    with StopSignals(trainer.request_stop, grace=0.1, saved=lambda: "Iteration 0 is saved."):
        trainer.run()


def test_a_rank_that_hangs_after_a_signal_leaves_when_the_grace_is_over_and_the_others_follow(tmp_path) -> None:
    first, second = run_on_ranks(hangs_after_a_signal, folder=tmp_path, timeout=TIMEOUT)
    assert second.exit_code == 128 + signal.SIGTERM
    assert "leaving now. Iteration 0 is saved." in second.output
    assert isinstance(first.error, RankFailedError)


# --- logs ------------------------------------------------------------------------------------------------------------


def logs(group: Any) -> None:
    import logging

    log = logging.getLogger("recipe")

    def say(trainer: Any) -> None:
        log.info("rank %d says iteration %d", group.rank, trainer.updater.state.iteration)

    def fail(trainer: Any) -> None:
        if group.rank == 1:
            raise ValueError("the disk of rank 1 is full")

    trainer = Trainer(ReducingUpdater(), None, "out", group=group, extensions=[RankLog(), say])
    trainer.extend(fail, trigger=(3, "iteration"))
    trainer.run()


def test_every_rank_has_a_log_and_rank_0_has_the_console(tmp_path) -> None:
    results = run_on_ranks(logs, folder=tmp_path, timeout=TIMEOUT)
    (place,) = tmp_path.glob("ranks_*")
    for rank in range(2):
        text = (place / "out" / "logs" / f"worker_{rank}.log").read_text()
        for iteration in range(1, 4):
            assert text.count(f"rank {rank} says iteration {iteration}") == 1
        assert f"rank {1 - rank} says" not in text
        assert text.count("ERROR ostinato.loop.trainer:") == 1
    assert "rank 0 says iteration 3" in results[0].output
    assert "rank 1 says" not in results[1].output
    assert "Rank 1 said: ValueError: the disk of rank 1 is full" in results[0].output
