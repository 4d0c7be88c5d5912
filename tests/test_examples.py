"""Every program in examples/ runs as it stands, in an empty folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def run(example: Path, folder: Path) -> str:
    done = subprocess.run([sys.executable, str(example)], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_in_an_empty_folder_and_shows_something(example: Path, tmp_path: Path) -> None:
    assert run(example, tmp_path).strip()
