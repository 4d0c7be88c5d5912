"""``ostinato recognition train`` as a launcher starts it, with a real network and two updates of a few images."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ostinato.runs import RunFolder

LIMIT = 400.0
"""Seconds until everything is given up: two processes that import torch and train a real network for a moment."""

TRAIN = ("recognition", "train", "-d", "synthetic", "--classes", "6", "--images", "24", "-b", "4", "--device", "cpu")
OPTIONS = ("--set", "backbone=mbf", "--set", "seed=1", "--set", "data.workers=0", "-n")


def _run(command: list[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def _iteration_and_ranks(run: Path) -> tuple[int, int]:
    loaded = RunFolder(run).load_newest()
    assert loaded is not None
    return loaded.iteration, loaded.manifest.world_size


def test_launch_starts_the_ranks_of_a_verb(tmp_path: Path) -> None:
    run = tmp_path / "run"
    start = [sys.executable, "-m", "ostinato", "launch", "-np", "2", "--max-restarts", "0", "--"]
    text = _run([*start, *TRAIN, *OPTIONS, "-m", str(run), "-i", "2"])
    assert text.count("finished: all 2 iterations") == 1, text  # rank 0 speaks
    assert "2 ranks, seed 1" in text
    assert _iteration_and_ranks(run) == (2, 2)
    assert (run / "logs/session_0001/worker_1.log").exists()


def test_mpirun_starts_them_without_being_told_an_address(tmp_path: Path) -> None:
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("there is no mpirun on this machine (Open MPI, from the system's packages)")
    if "Open MPI" not in subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout:
        pytest.skip("the mpirun of this machine is not that of Open MPI")
    run = tmp_path / "run"
    start = [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable, "-m", "ostinato"]
    text = _run([*start, *TRAIN, *OPTIONS, "-m", str(run), "-i", "2"])
    assert text.count("finished: all 2 iterations") == 1, text
    assert _iteration_and_ranks(run) == (2, 2)
