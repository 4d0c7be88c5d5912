"""Trainings of several ranks, with real processes: killed, continued, and continued on other numbers of ranks."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from metrics_lines import losses_of
from rank_processes import RankResult, run_on_ranks

from ostinato.errors import BadInputError, UsageError
from ostinato.runs import RunFolder

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

UPDATES = 11


# --- in the processes ------------------------------------------------------------------------------------------------


def _request(folder: str, overrides: list[str], **settings: Any) -> Any:
    from ostinato.recognition.request import RecognitionRequest

    own = ("seed=5", "embedding_size=16", "scale=16", "m2=0.2", "learning_rate=0.05", "workers=0", "batch_size=10")
    given: dict[str, Any] = {"classes": 7, "images": 42, "save_interval": 4, "logs": False, "device": "cpu"}
    return RecognitionRequest(
        "synthetic", Path(folder), overrides=(*own, f"iterations={UPDATES}", *overrides), **{**given, **settings}
    )


class _Begin:
    """Notes with what a training begins, and kills its process after a number of updates, once all have saved."""

    def __init__(self, training: Any, group: Any, dies_after: int) -> None:
        self._training = training
        self._group = group
        self._dies_after = dies_after
        self.seen: dict[str, Any] = {}

    def initialize(self, trainer: Any) -> None:
        self.seen = facts(self._training)

    def __call__(self, trainer: Any) -> None:
        if trainer.updater.state.iteration == self._dies_after:
            self._training.snapshot.settle()
            self._group.barrier()  # every rank's part is on the disk, and rank 0 has committed
            os.kill(os.getpid(), signal.SIGKILL)


def facts(training: Any) -> dict[str, Any]:
    head, updater = training.head, training.updater
    state = head.state_dict()
    return {
        "iteration": updater.state.iteration,
        "samples": updater.state.samples,
        "first": head.first_class,
        "weight": head.weight.clone(),
        "momentum": state["tables"]["momentum"].tensor.clone(),
        "backbone": {name: value.clone() for name, value in training.backbone.state_dict().items()},
    }


def train(group: Any, folder: str, overrides: list[str], dies_after: int = -1) -> dict[str, Any]:
    from tiny_backbone import build_tiny_backbone

    from ostinato.recognition.training import open_training

    told: list[str] = []
    with open_training(
        _request(folder, overrides), tell=told.append, group=group, build=build_tiny_backbone
    ) as training:
        assert training is not None
        begin = _Begin(training, group, dies_after)
        training.trainer.extend(begin, name="begin", trigger=(1, "iteration"))
        training.trainer.run()
        return {"begins": begin.seen, "ends": facts(training), "told": told}


def ask_for_different_things(group: Any, folder: str) -> None:
    from tiny_backbone import build_tiny_backbone

    from ostinato.recognition.training import open_training

    request = _request(folder, [f"learning_rate=0.0{group.rank + 1}"])
    with open_training(request, tell=print, group=group, build=build_tiny_backbone):
        raise AssertionError("never reached")


def give_too_few_images(group: Any, folder: str) -> None:
    from tiny_backbone import build_tiny_backbone

    from ostinato.recognition.training import open_training

    with open_training(_request(folder, ["batch_size=5"]), tell=print, group=group, build=build_tiny_backbone):
        raise AssertionError("never reached")


def measure(group: Any) -> tuple[Any, list[str]]:
    from tiny_backbone import build_tiny_backbone

    from ostinato.recognition.speed_test import measure_speed

    report = measure_speed(
        _request("nowhere", ["batch_size=9"], classes=50), updates=2, tell=print, group=group, build=build_tiny_backbone
    )
    return report, report.lines()


# --- the tests -------------------------------------------------------------------------------------------------------


def _values(results: list[RankResult]) -> list[Any]:
    for result in results:
        assert result.error is None, result.output
    return [result.value for result in results]


def _whole(values: list[Any], moment: str, table: str) -> torch.Tensor:
    return torch.cat([value[moment][table] for value in sorted(values, key=lambda value: value[moment]["first"])])


def test_a_run_of_two_ranks_that_is_killed_goes_on_bit_for_bit_and_on_any_number_of_ranks(tmp_path: Path) -> None:
    straight = _values(run_on_ranks(train, str(tmp_path / "straight"), [], folder=tmp_path))
    losses = losses_of(tmp_path / "straight")
    assert len(losses) == UPDATES

    # Update 6 lies in the middle of a pass of 42 images, and between two saves.
    killed = run_on_ranks(train, str(tmp_path / "killed"), [], 6, folder=tmp_path)
    assert [result.exit_code for result in killed] == [-signal.SIGKILL] * 2, [result.output for result in killed]
    assert [name.iteration for name in RunFolder(tmp_path / "killed").names()] == [4]
    kept = _copy(tmp_path / "killed", tmp_path / "kept")
    for ranks in (1, 3):
        copy = _copy(kept, tmp_path / f"on_{ranks}")
        values = _values(run_on_ranks(train, str(copy), [], folder=tmp_path, ranks=ranks))
        for value in values:
            assert (value["begins"]["iteration"], value["begins"]["samples"]) == (4, 40)
            assert value["ends"]["samples"] == 110
        uneven = "Batch size 10 cannot be shared evenly by 3 devices, so some of them wait. Better: 9 or 12."
        assert (uneven in values[0]["told"]) == (ranks == 3)
        _check_loaded(kept, values)
        # From there on batch norms see other parts of the batches, so only the beginning is the same.
        assert losses_of(copy)[:4] == losses[:4]
        assert len(losses_of(copy)) == UPDATES

    resumed = _values(run_on_ranks(train, str(tmp_path / "killed"), [], folder=tmp_path))
    _check_loaded(kept, resumed)
    assert losses_of(tmp_path / "killed") == losses
    for one, other in zip(resumed, straight, strict=True):
        assert one["ends"]["weight"].equal(other["ends"]["weight"])
        assert one["ends"]["momentum"].equal(other["ends"]["momentum"])
        for name, value in one["ends"]["backbone"].items():
            assert value.equal(other["ends"]["backbone"][name]), name
            assert value.equal(resumed[0]["ends"]["backbone"][name]), f"{name} differs between the ranks"
    assert straight[1]["told"] == []  # rank 0 speaks
    assert "2 ranks" in straight[0]["told"][0]
    assert (tmp_path / "straight/logs/session_0001/worker_1.log").exists()


def _copy(source: Path, target: Path) -> Path:
    return shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock"))


def _check_loaded(run: Path, values: list[Any]) -> None:
    """What the ranks begin with is what the generation holds, to the last bit."""
    loaded = RunFolder(run).load_newest()
    assert loaded is not None
    head: Any = loaded.state["trainer"]["updater"]["head"]  # type: ignore[index]
    assert _whole(values, "begins", "weight").equal(head["weight"].read())
    assert _whole(values, "begins", "momentum").equal(head["tables"]["momentum"].read())
    for value in values:
        for name, tensor in loaded.model.items():
            assert value["begins"]["backbone"][name].equal(tensor), name


def test_synchronised_norms_train_a_run_that_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    _values(run_on_ranks(train, str(run), ["batch_norm=synchronised", "iterations=4"], folder=tmp_path))
    values = _values(run_on_ranks(train, str(run), ["iterations=6"], folder=tmp_path))
    assert [value["begins"]["iteration"] for value in values] == [4, 4]
    assert values[0]["ends"]["backbone"]["norm.running_mean"].equal(values[1]["ends"]["backbone"]["norm.running_mean"])


def test_a_batch_smaller_than_the_number_of_ranks_is_raised_everywhere(tmp_path: Path) -> None:
    settings = ["batch_norm=synchronised", "batch_size=2", "iterations=2"]
    values = _values(run_on_ranks(train, str(tmp_path / "run"), settings, folder=tmp_path, ranks=3))
    assert [value["ends"]["samples"] for value in values] == [6, 6, 6]
    assert "Batch size 2 is less than the number of devices; it was raised to 3." in values[0]["told"]
    loaded = RunFolder(tmp_path / "run").load_newest()
    assert loaded is not None
    assert loaded.sessions[-1].batch_size == 3
    assert loaded.options["values"]["batch_size"] == 3


def test_ranks_that_ask_for_different_things_are_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for result in run_on_ranks(ask_for_different_things, str(run), folder=tmp_path):
        assert isinstance(result.error, UsageError), result.output
        assert "optimizer.learning_rate is 0.01 on rank 0, 0.02 on rank 1" in str(result.error)
    for result in run_on_ranks(give_too_few_images, str(run), folder=tmp_path, ranks=3):
        assert isinstance(result.error, BadInputError), result.output
        assert "A batch of 5 images (-b) is too small for 3 ranks: each needs 2 or more" in str(result.error)
    assert not run.exists()


def test_the_speed_of_ranks_is_measured_with_what_they_send(tmp_path: Path) -> None:
    first, second = _values(run_on_ranks(measure, folder=tmp_path))
    assert first == second
    report, lines = first
    assert report.images == 9
    assert report.bytes_backbone > 4 * 3 * 14 * 14 * 16  # at least the gradient of the first layer
    assert report.bytes_head > 0
    assert any("handed to other ranks" in line for line in lines)
    # Part of what the phases hold: the largest of either rank, so the sum over all phases bounds it.
    assert 0 < report.collectives_head < sum(report.seconds.values())
    assert report.collectives_backbone > 0
    assert any(line.startswith("in collectives") for line in lines)
    assert not (tmp_path / "nowhere").exists()
