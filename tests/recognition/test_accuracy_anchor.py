"""Sampling classes costs no accuracy: a small task with reference numbers, on identities that were not trained with.

The task and the full table are in ``benchmarks/recognition_anchor.py``. Here runs a part of it: each
margin, each sampling rate and each kind of update once, the mean of three seeds against that of InsightFace's code.
"""

from __future__ import annotations

import importlib.util
import statistics
from pathlib import Path
from types import ModuleType

import pytest
import torch

SEEDS = (1, 2, 3)
TOLERANCE = 0.01


def _the_task() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "recognition_anchor.py"
    specification = importlib.util.spec_from_file_location("recognition_anchor", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def task() -> ModuleType:
    torch.set_num_threads(1)
    return _the_task()


def test_the_drawn_task_is_that_of_the_reference(task: ModuleType) -> None:
    raw = [task.ten_fold_accuracy(task.observations(seed)[1]) for seed in SEEDS]
    assert [round(accuracy, 3) for accuracy in raw] == [0.781, 0.826, 0.787]


@pytest.mark.parametrize(
    ("margin", "rate", "update"),
    [
        ("cosface16", 1.0, "frozen"),
        ("cosface16", 0.3, "dense_lazy"),
        ("arcface16", 0.1, "frozen"),
    ],
)
def test_accuracy_is_that_of_the_reference(task: ModuleType, margin: str, rate: float, update: str) -> None:
    found = [task.trained_accuracy(seed, task.MARGINS[margin](), rate, update) for seed in SEEDS]
    assert statistics.mean(found) == pytest.approx(task.REFERENCE[margin][rate], abs=TOLERANCE)
