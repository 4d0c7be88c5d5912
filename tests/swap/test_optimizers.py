"""Swap runs with other optimizers than the usual one, through the command and the files of the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_client import Kept, assert_equal_runs
from training_fixtures import QUICK

Ostinato = Callable[..., tuple[int, str]]


def train(ostinato: Ostinato, people: Path, run: Path, end: int, *further: str) -> str:
    words: list[str | Path] = ["swap", "train", "-A", people / "a", "-B", people / "b", "-m", run, "-b", "2"]
    status, text = ostinato(*words, "--set", "seed=1", *QUICK, "-i", str(end), *further)
    assert status == 0, text
    return text


# No count at all; a number for each parameter besides the count; a count on which the rule itself depends.
@pytest.mark.parametrize(("name", "epsilon"), [("lion", -7), ("nadam", -7), ("adabelief", -16)])
def test_a_run_of_two_sessions_equals_one_of_one(
    ostinato: Ostinato, people: Path, tmp_path: Path, name: str, epsilon: int
) -> None:
    chosen = ("--set", f"optimizer.optimizer={name}", "--set", f"optimizer.epsilon_exponent={epsilon}")
    for end in (6, 9):
        train(ostinato, people, tmp_path / "parts", end, *chosen)
    train(ostinato, people, tmp_path / "whole", 9, *chosen)

    assert_equal_runs(Kept.read(tmp_path / "parts"), Kept.read(tmp_path / "whole"))


def test_the_optimizer_of_a_run_stays_and_its_rate_can_change(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    train(ostinato, people, tmp_path / "run", 2, "--set", "optimizer.optimizer=rms-prop")
    text = train(
        ostinato, people, tmp_path / "run", 3, "--set", "optimizer.optimizer=adamax", "--set", "learning_rate=3e-5"
    )

    assert "rms-prop kept, adamax asked for" in text
    assert "5e-05 -> 3e-05" in text
    moments = Kept.read(tmp_path / "run").optimizer["main"]
    assert moments["optimizer"] == "RMSprop"
