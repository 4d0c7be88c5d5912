"""Ranks that a real ``mpirun`` has started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("started_program.py")
LIMIT = 240.0
"""Seconds until everything is given up: two processes that import torch."""

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun on this machine")


def started(folder: Path) -> list[dict[str, Any]]:
    """What the two ranks have found."""
    file = folder / "meeting"
    command = ["mpirun", "-np", "2", "--oversubscribe", "--allow-run-as-root", sys.executable, str(PROGRAM), str(file)]
    own = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [json.loads(Path(f"{file}.{rank}").read_text()) for rank in range(2)]


def test_ranks_of_mpirun_know_their_place_and_train_together(tmp_path: Path) -> None:
    for rank, found in enumerate(started(tmp_path)):
        place = {name: found[name] for name in ("rank", "size", "local_rank", "launcher", "address")}
        assert place == {"rank": rank, "size": 2, "local_rank": rank, "launcher": "Open MPI", "address": None}
        assert found["sum"] == [21.0]
        assert found["weight"] == [-1.5, -1.5]
        # Without the file they are told what to set.
        assert "Open MPI has started 2 ranks" in found["error"]
        assert "Set MASTER_ADDR" in found["error"]
