"""Every program in examples/ runs as it stands, in an empty folder; a pair of programs ends with the same line."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
PAIRS = [name for name in NAMES if f"{name}_plain" in NAMES]
DURABLE = ["gan", "image_classifier"]
"""Pairs of which ours is killed on the way."""
IN_SEVERAL_PROCESSES = ["several_processes"]


def command_of(name: str, *arguments: str) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with_ranks = name.removesuffix("_plain") in IN_SEVERAL_PROCESSES
    return [sys.executable, *(launcher if with_ranks else []), str(FOLDER / f"{name}.py"), *arguments]


TORCH_LEFT_BADLY = "terminate called without an active exception"
"""What torch says where a process ends while a thread of gloo, held by DistributedDataParallel, is still there. It is
rare, comes after the program's last line, and is not what is tested here."""


def run(name: str, folder: Path, *arguments: str) -> str:
    for _ in range(3):
        done = subprocess.run(command_of(name, *arguments), cwd=folder, capture_output=True, text=True, timeout=300)
        if TORCH_LEFT_BADLY not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_killed(name: str, folder: Path, *arguments: str) -> str:
    """Kill it as soon as it has saved something, start it again, and return what the second one prints."""
    with subprocess.Popen(command_of(name, *arguments), cwd=folder, stdout=subprocess.DEVNULL) as process:
        saved = False
        while not saved and process.poll() is None:
            saved = any(folder.glob("*/generations/000*/manifest.json"))
            time.sleep(0.01)
        process.kill()
    return run(name, folder, *arguments)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(tuple(PAIRS))])
def test_an_example_runs_in_an_empty_folder_and_shows_something(name: str, tmp_path: Path) -> None:
    assert run(name, tmp_path).strip()


def test_the_pairs_of_which_the_documentation_speaks_are_there() -> None:
    assert set(PAIRS) >= {"image_classifier", "gan", "several_processes", "custom_extension", "gluon_script"}


@pytest.mark.parametrize("name", PAIRS)
def test_an_example_ends_like_the_same_program_in_plain_pytorch(name: str, tmp_path: Path) -> None:
    plain = run(f"{name}_plain", tmp_path)
    ours = run_killed(name, tmp_path) if name in DURABLE else run(name, tmp_path)
    assert ours.splitlines()[-1] == plain.splitlines()[-1]


def test_the_durable_loop_ends_the_same_after_a_kill(tmp_path: Path) -> None:
    undisturbed = run("durable_loop", tmp_path, "straight", "300").splitlines()[-1]
    (tmp_path / "other").mkdir()
    continued = run_killed("durable_loop", tmp_path / "other", "killed", "300")
    assert "starting at iteration 0" not in continued
    assert continued.splitlines()[-1] == undisturbed
