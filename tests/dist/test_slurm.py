"""Ranks in the environment that SLURM gives its tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("started_program.py")
LIMIT = 240.0
"""Seconds until everything is given up: two processes that import torch."""


def test_tasks_of_slurm_know_their_place_and_train_together(tmp_path: Path) -> None:
    file = tmp_path / "meeting"
    own = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    environment |= {"SLURM_NTASKS": "2", "SLURM_JOB_ID": "41234", "SLURM_STEP_NODELIST": "node[07-09]"}
    tasks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(file)],
            env=environment | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for rank, task in enumerate(tasks):
        text, _ = task.communicate(timeout=LIMIT)
        assert task.returncode == 0, text
        found = json.loads(Path(f"{file}.{rank}").read_text())
        place = {name: found[name] for name in ("rank", "size", "local_rank", "launcher", "address")}
        # The first machine, and a port that jobs with other numbers do not use; here the ranks meet at a file.
        address = "node07:21234"
        assert place == {"rank": rank, "size": 2, "local_rank": rank, "launcher": "SLURM", "address": address}
        assert found["sum"] == [21.0]
        assert found["weight"] == [-1.5, -1.5]
