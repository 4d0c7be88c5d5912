"""`ostinato swap convert` with what a training has left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from command_client import CommandServer
from training_fixtures import FACES, QUICK

Ostinato = Callable[..., tuple[int, str]]


def command(people: Path, run: Path, *further: str | Path) -> list[str | Path]:
    words: list[str | Path] = ["swap", "train", "-A", people / "a", "-B", people / "b", "-m", run, "-b", "2"]
    return [*words, "--set", "seed=1", *QUICK, *further]


@pytest.fixture(scope="module")
def run(commands: CommandServer, people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    status, text = commands.run(*command(people, run, "-i", "4", "-s", "2"))
    assert status == 0, text
    return run


def files_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}


def test_faces_are_swapped_marked_and_the_run_is_not_touched(
    ostinato: Ostinato, people: Path, run: Path, tmp_path: Path
) -> None:
    before = files_of(run)
    status, text = ostinato("swap", "convert", run, people / "a", tmp_path / "out")
    assert status == 0, text
    assert "original at iteration 4: b's face on a's pictures" in text
    assert f"{FACES} swapped faces are in {tmp_path / 'out'}, marked as synthetic" in text
    written = sorted((tmp_path / "out").glob("*.png"))
    assert [path.name for path in written] == [path.name for path in sorted((people / "a").iterdir())]
    assert all(b"TrainedAlgorithmicMedia" in path.read_bytes() for path in written)
    assert files_of(run) == before


def test_directions_and_generations_differ(ostinato: Ostinato, people: Path, run: Path, tmp_path: Path) -> None:
    pictures = {}
    for name, words in (
        ("ab", []),
        ("ba", ["-d", "b_to_a"]),
        ("older", ["--generation", "2", "-b", "7"]),
        ("again", ["-d", "A_TO_B", "-b", "1"]),
    ):
        status, text = ostinato("swap", "convert", run, people / "a", tmp_path / name, *words)
        assert status == 0, text
        pictures[name] = cv2.imread(str(tmp_path / name / "drawn_000003_0.png")).astype(int)
    assert np.abs(pictures["again"] - pictures["ab"]).max() <= 1
    assert np.abs(pictures["ba"] - pictures["ab"]).max() > 1
    assert np.abs(pictures["older"] - pictures["ab"]).max() > 0


def test_faces_that_cannot_be_used_are_named_and_the_status_says_so(
    ostinato: Ostinato, people: Path, run: Path, tmp_path: Path
) -> None:
    faces = Path(shutil.copytree(people / "a", tmp_path / "faces"))
    (faces / "broken.png").write_bytes(b"no picture")
    status, text = ostinato("swap", "convert", run, faces, tmp_path / "out")
    assert status == 1
    assert "left out: broken.png: " in text
    assert f"{FACES} swapped faces" in text


def test_it_works_while_the_run_is_trained(
    commands: CommandServer, ostinato: Ostinato, people: Path, run: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    training = commands.start(*command(people, copy, "-s", "2"), faults={"slow_updates": {"seconds": 0.02}})
    training.wait_for("saved iteration 6")
    status, text = ostinato("swap", "convert", copy, people / "a", tmp_path / "out")
    training.kill()
    training.wait()
    assert status == 0, text


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["-d", "ab"], 2, "--direction 'ab' is no direction. Write it like a_to_b"),
        (["-d", "a_to_c"], 3, "The run has no side c. Its sides are: a, b."),
        (["--generation", "3"], 3, "3"),
        (["-b", "0"], 2, "-b/--batch-size is 0."),
    ],
)
def test_what_makes_no_sense_is_said(
    ostinato: Ostinato, people: Path, run: Path, tmp_path: Path, words: list[str], status: int, message: str
) -> None:
    found, text = ostinato("swap", "convert", run, people / "a", tmp_path / "out", *words)
    assert found == status
    assert message in text
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_run_and_a_damaged_run_are_told_apart(
    ostinato: Ostinato, people: Path, run: Path, tmp_path: Path
) -> None:
    status, text = ostinato("swap", "convert", people, people / "a", tmp_path / "out")
    assert status == 3
    assert f"{people} is no run folder." in text
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    for path in copy.glob("generations/*/model.safetensors"):
        path.write_bytes(b"")
    before = files_of(copy)
    status, text = ostinato("swap", "convert", copy, people / "a", tmp_path / "out")
    assert status == 4
    assert files_of(copy) == before
