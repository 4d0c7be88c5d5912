"""Golden curves of the search for a learning rate and of the warm-up.

``lr_finder.json`` and ``lr_warmup.json`` of ``swap-losses-optimizers``. Rows that record a fault of the original are
not compared with as they stand: with accumulation its schedule falls behind, its warm-up begins with a rate of 0, and a
warm-up after a search forgets what was found. The right rows are derived from them here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ostinato.config import OptimizerOptions
from ostinato.optim import build_optimizer, set_learning_rate, warm_up_factor
from ostinato.optim.rate_finder import RateFinder

FOLDER = "swap-losses-optimizers"
CASES = (
    "adam_100",
    "adam_100_aggressive",
    "adam_100_extreme_graph",
    "adam_100_graph_exit",
    "lion_100",
    "adam_acc3_100",
    "adam_nan_at_40",
    "adam_nan_at_0",
    "too_low",
    "diverge_early_graph",
    "inf_at_30",
)


def _cases(golden: Path) -> dict[str, Any]:
    return json.loads((golden / FOLDER / "lr_finder.json").read_text(encoding="utf-8"))


def _searched(case: dict[str, Any]) -> RateFinder:
    """The search over the golden losses."""
    finder = RateFinder(case["steps"], start=case["start_lr"], end=case["end_lr"])
    for loss in case["loss"]:
        finder.add(float(loss))
    return finder


def test_every_golden_case_is_listed(golden: Path) -> None:
    assert tuple(_cases(golden)) == CASES


@pytest.mark.parametrize("name", CASES)
def test_smoothed_losses_best_and_result(golden: Path, name: str) -> None:
    case = _cases(golden)[name]
    finder = _searched(case)

    assert finder.is_over
    assert [point.smoothed for point in finder.points] == pytest.approx(
        [float(value) for value in case["smoothed"]], rel=1e-6
    )
    if name != "adam_acc3_100":
        assert [point.rate for point in finder.points] == pytest.approx(case["recorded_lr"], rel=1e-12)
        assert [point.used for point in finder.points] == pytest.approx(
            case["lr_used"][: len(finder.points)], rel=1e-12
        )
    if case["best_index"] is None:
        assert finder.best is None
        assert finder.result(case["strength"]) is None
        return
    assert finder.best is not None
    assert finder.best.batch == case["best_index"] + 1
    assert finder.best.smoothed == pytest.approx(case["best_smoothed"], rel=1e-6)
    if name == "adam_acc3_100":
        # The original stops at a third of the way; the last batch of the whole sweep stands for 0.1.
        assert finder.result("default") == pytest.approx(0.01, rel=1e-12)
    else:
        assert finder.result(case["strength"]) == (
            None if case["best_lr"] is None else pytest.approx(case["best_lr"], rel=1e-12)
        )


@pytest.mark.parametrize("name", ["adam_100", "lion_100"])
def test_the_golden_losses_come_out_when_the_problem_is_trained(golden: Path, name: str) -> None:
    case = _cases(golden)[name]
    problem = np.load(golden / FOLDER / "lr_finder_problem.npz")
    x, y = torch.from_numpy(problem["x"]), torch.from_numpy(problem["y"])
    model = nn.Module()
    model.kernel, model.bias = (
        nn.Parameter(torch.from_numpy(problem["W0"])),
        nn.Parameter(torch.from_numpy(problem["b0"])),
    )
    options = OptimizerOptions(optimizer=case["optimizer"])
    optimizer = build_optimizer(model.named_parameters(), options)
    finder = RateFinder(case["steps"])
    while not finder.is_over:
        set_learning_rate(optimizer, finder.rate)
        loss = ((x @ model.kernel + model.bias - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        finder.add(loss.item())

    assert [point.loss for point in finder.points] == pytest.approx(case["loss"], rel=1e-6)
    assert finder.result(case["strength"]) == pytest.approx(case["best_lr"], rel=1e-12)


def test_the_warm_up_is_the_golden_one_an_update_earlier(golden: Path) -> None:
    """The original's rate after update k is the one that update k runs with here, so that none has the rate 0."""
    rows = json.loads((golden / FOLDER / "lr_warmup.json").read_text(encoding="utf-8"))
    assert rows
    for row in rows:
        updates = 0
        for call in row["calls"]:
            if call["is_update"]:
                rate = row["target_lr"] * warm_up_factor(updates, row["warmup_steps"])
                assert rate == pytest.approx(call["lr_after_call"], rel=1e-12)
                updates += 1
        assert updates


def test_the_warm_up_after_a_search_rises_to_the_rate_that_was_found(golden: Path) -> None:
    case = json.loads((golden / FOLDER / "lr_finder_with_warmup.json").read_text(encoding="utf-8"))
    scale = case["found"] / case["config_lr"]
    for update, faulty in enumerate(case["lr_used_by_following_updates"][1:]):
        rate = case["found"] * warm_up_factor(update, case["warmup_steps"])
        assert rate == pytest.approx(faulty * scale, rel=1e-12)
