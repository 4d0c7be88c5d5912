"""A training that is killed before it has saved anything starts again as it began."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from command_client import CommandServer
from training_fixtures import QUICK


def losses(run: Path) -> list[Any]:
    lines = map(json.loads, (run / "logs" / "session_0001" / "metrics.jsonl").read_text().splitlines())
    return [[line["iteration"], line["loss/total"]] for line in lines]


def test_a_run_without_a_given_seed_that_is_killed_before_its_first_save_repeats_its_losses(
    commands: CommandServer, people: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["swap", "train", "-A", people / "a", "-B", people / "b", "-m", run, "-b", "2", *QUICK]
    # The log is written when the process lets go of it; this one is killed after that, and its last save with it.
    fault = {"kill_at_operation": {"moment": "before", "operation": "create", "name": r"model\.safetensors"}}
    status, text = commands.run(*words, "-i", "5", faults=fault)
    assert status == -signal.SIGKILL, text
    before = losses(run)
    assert [iteration for iteration, _ in before] == [1, 2, 3, 4, 5]
    status, text = commands.run(*words, "-i", "5")
    assert status == 0, text
    assert losses(run) == before
