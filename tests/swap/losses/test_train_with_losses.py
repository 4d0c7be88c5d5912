"""``ostinato swap train`` with every loss function."""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Callable
from pathlib import Path

import pytest
from lpips_formula import write_formula_files
from training_fixtures import QUICK

from ostinato.config.loss import MainLoss
from ostinato.swap.losses import loss_names

Ostinato = Callable[..., tuple[int, str]]
ITERATIONS = 16
COMPANIONS = ("flip", "lpips_alex", "lpips_squeeze")


@pytest.fixture(scope="module")
def lpips_files(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The value of the option, with the files of all three networks."""
    folder = tmp_path_factory.mktemp("lpips")
    names = [name for name in loss_names() if name.startswith("lpips_")]
    return ", ".join(str(path) for name in names for path in write_formula_files(name, folder))


def train(ostinato: Ostinato, people: Path, run: Path, iterations: int, *words: str) -> list[dict[str, float]]:
    """Train the tiny model; the numbers of each iteration."""
    overrides = ["seed=1", "optimizer.learning_rate=0.005", *words]
    settings = [word for override in overrides for word in ("--set", override)]
    folders = ["-A", people / "a", "-B", people / "b", "-m", run]
    plain = ["--no-warp", "--no-flip", "--no-augment-color"]
    status, text = ostinato(
        "swap", "train", *folders, "-b", "3", "-i", str(iterations), "-s", str(iterations), *plain, *settings, *QUICK
    )
    assert status == 0, text
    (log,) = (run / "logs").rglob("metrics.jsonl")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    records = [record for record in records if "loss/total" in record]
    assert len(records) == iterations
    assert all(math.isfinite(value) for record in records for value in record.values())
    return records


def assert_falls(records: list[dict[str, float]], name: str) -> None:
    def mean(some: list[dict[str, float]]) -> float:
        return sum(record[f"loss/{side}/{name}"] for record in some for side in "ab") / len(some)

    assert mean(records[-4:]) < mean(records[:4])


def test_all_names_are_tested_here() -> None:
    assert {*typing.get_args(MainLoss), *COMPANIONS, "lpips_vgg16"} == {*loss_names()}


@pytest.mark.parametrize("name", sorted(typing.get_args(MainLoss)))
def test_each_as_the_only_loss_falls(ostinato: Ostinato, people: Path, tmp_path: Path, name: str) -> None:
    words = (f"loss.loss_function={name}", "loss.loss_function_2=none", "loss.loss_weight_2=0")
    assert_falls(train(ostinato, people, tmp_path / "run", ITERATIONS, *words), name)


def test_companions_fall_beside_mse(ostinato: Ostinato, people: Path, tmp_path: Path, lpips_files: str) -> None:
    words = ["loss.loss_function=mse", f"loss.lpips_files={lpips_files}"]
    for number, name in enumerate(COMPANIONS, start=2):
        words += [f"loss.loss_function_{number}={name}", f"loss.loss_weight_{number}=200"]
    records = train(ostinato, people, tmp_path / "run", ITERATIONS, *words)
    for name in ("mse", *COMPANIONS):
        assert_falls(records, name)


def test_vgg16_trains(ostinato: Ostinato, people: Path, tmp_path: Path, lpips_files: str) -> None:
    """Two iterations only: it takes a hundred times as long as all the others."""
    words = ("loss.loss_function_2=lpips_vgg16", "loss.loss_weight_2=25", f"loss.lpips_files={lpips_files}")
    for record in train(ostinato, people, tmp_path / "run", 2, *words):
        assert record["loss/a/lpips_vgg16"] > 0


def test_a_missing_file_of_weights_stops_before_training(ostinato: Ostinato, people: Path, tmp_path: Path) -> None:
    words = ["swap", "train", "-A", people / "a", "-B", people / "b", "-m", tmp_path / "run", "-i", "2"]
    words += ["--set", "loss.loss_function_2=lpips_alex"]
    status, text = ostinato(*words)
    assert (status, "lpips_files" in text) == (3, True)
    (trunk, _) = write_formula_files("lpips_alex", tmp_path)
    status, text = ostinato(*words, "--set", f"loss.lpips_files={trunk},")
    assert status == 3
    assert "does not hold the head of lpips_alex" in " ".join(text.split())
