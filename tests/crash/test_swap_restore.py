"""`ostinato runs restore`, killed at each of its file operations, and the training that goes on after it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from command_client import CommandServer, Kept, assert_equal_runs
from training_fixtures import QUICK

from ostinato.runs import RunFolder


def command(people: Path, run: Path, total: int) -> list[str | Path]:
    words: list[str | Path] = ["swap", "train", "-A", people / "a", "-B", people / "b", "-m", run, "-b", "2"]
    return [*words, "--set", "seed=1", *QUICK, "-s", "2", "-I", "2", "-i", str(total)]


@pytest.fixture(scope="module")
def trained(commands: CommandServer, people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 8 iterations with the generations 2, 4, 6 and 8."""
    run = tmp_path_factory.mktemp("trained") / "run"
    status, text = commands.run(*command(people, run, 8))
    assert status == 0, text
    return run


@pytest.fixture(scope="module")
def undisturbed(commands: CommandServer, people: Path, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    run = Path(shutil.copytree(trained, tmp_path_factory.mktemp("undisturbed") / "run"))
    status, text = commands.run(*command(people, run, 10))
    assert status == 0, text
    return Kept.read(run)


def test_killed_anywhere_it_is_done_or_not_done_and_training_continues_exactly(
    commands: CommandServer, people: Path, tmp_path: Path, trained: Path, undisturbed: Kept
) -> None:
    found = []
    status = -signal.SIGKILL
    for number in range(100):
        run = Path(shutil.copytree(trained, tmp_path / f"run{number}"))
        fault = {"kill_at_operation": {"moment": "before", "operation": ".*", "name": ".*", "number": number}}
        status, text = commands.run("runs", "restore", run, "4", faults=fault)
        assert status in (0, -signal.SIGKILL), text
        train = status == 0 or number % 4 == 0
        if train:  # the training finishes what was begun
            trained_status, text = commands.run(*command(people, run, 10))
            assert trained_status == 0, text
            found.append(4 if f"resuming {run.name} at iteration 4 " in text else 8)
            assert f"resuming {run.name} at iteration {found[-1]} " in text
            assert_equal_runs(Kept.read(run), undisturbed)
        else:
            with RunFolder(run) as folder:
                loaded = folder.load_newest()
                assert loaded is not None
                found.append(loaded.iteration)
                assert [name.iteration for name in folder.names()] == ([2, 4] if found[-1] == 4 else [2, 4, 6, 8])
        if status == 0:
            break
    assert status == 0
    assert found == sorted(found, reverse=True), "once it is decided it is done"
    assert set(found) == {4, 8}
