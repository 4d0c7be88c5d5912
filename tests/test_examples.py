"""Every program in examples/ runs as it stands, in an empty folder."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def run(example: Path, folder: Path, *arguments: str) -> str:
    command = [sys.executable, str(example), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_in_an_empty_folder_and_shows_something(example: Path, tmp_path: Path) -> None:
    assert run(example, tmp_path).strip()


def test_the_durable_loop_ends_the_same_after_a_kill(tmp_path: Path) -> None:
    example = next(path for path in EXAMPLES if path.stem == "durable_loop")
    undisturbed = run(example, tmp_path, "straight", "300")
    command = [sys.executable, str(example), "killed", "300"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        while not list(tmp_path.glob("killed/generations/000*/manifest.json")):
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    continued = run(example, tmp_path, "killed", "300")
    assert "starting at iteration 0" not in continued
    assert continued.splitlines()[-1] == undisturbed.splitlines()[-1]
