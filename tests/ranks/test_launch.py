"""``ostinato launch`` with real ranks and servers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).with_name("launched_training.py")
LIMIT = 240.0
"""Seconds until everything is given up: several processes that import torch, twice."""


def launched(folder: Path, store: str, steps: int, dies_after: int, **options: object) -> tuple[int, str]:
    given = {"ranks": 2, "max_restarts": 1, **options}
    command = [sys.executable, str(PROGRAM), store, str(folder), str(steps), str(dies_after)]
    code = f"from ostinato.cli.launch import launch; launch({command!r}, **{given!r})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def results(text: str) -> dict[int, tuple[int, list[float]]]:
    found = re.findall(r"rank (\d) of 2 went on from (\d+): \[(.*?)\]", text)
    return {int(rank): (int(done), [float(part) for part in values.split(",")]) for rank, done, values in found}


def test_a_killed_rank_is_started_again_and_training_goes_on(tmp_path: Path) -> None:
    status, text = launched(tmp_path, "dist_sync", 5, 3)
    assert status == 0, text
    weight, momentum = torch.zeros(3), torch.zeros(3)
    for step in range(5):
        momentum = 0.9 * momentum - 0.1 * (1 + 2 + 2 * step)
        weight = weight + momentum
    assert results(text) == {rank: (3, pytest.approx(weight.tolist(), rel=1e-5)) for rank in range(2)}


def test_servers_outlive_ranks_that_are_started_again(tmp_path: Path) -> None:
    status, text = launched(tmp_path, "dist_async", 4, 2, servers=2, staleness=4)
    assert status == 0, text
    assert [done for done, _ in results(text).values()] == [2, 2]


def test_ranks_fill_the_slots_of_named_machines(tmp_path: Path) -> None:
    program = ["python", str(PROGRAM), "dist_sync", str(tmp_path), "2", "9"]
    command = [sys.executable, "-m", "ostinato", "launch", "-H", "localhost:2", "--max-restarts", "0", "--", *program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [done for done, _ in results(ended.stdout + ended.stderr).values()] == [0, 0]


def test_bad_input_is_no_reason_to_start_the_ranks_again(tmp_path: Path) -> None:
    program = tmp_path / "refuses.py"
    program.write_text(
        "import os, pathlib, sys\n"
        f"life = pathlib.Path({str(tmp_path)!r}, 'rank' + os.environ['RANK'] + 'life' + "
        "os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "life.touch()\n"
        "sys.exit(3)\n"
    )
    command = [sys.executable, "-m", "ostinato", "launch", "-np", "2", "--max-restarts", "2", "--"]
    ended = subprocess.run(
        [*command, "python", str(program)], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "Error: Rank" in ended.stderr
    lives = {path.name.partition("life")[2] for path in tmp_path.glob("rank*life*")}
    assert lives == {"0"}  # the slower rank may be stopped before it has said so
