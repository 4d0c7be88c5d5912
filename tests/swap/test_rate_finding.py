"""Searching for a learning rate: what it finds, and that it leaves everything as it was."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from tiny_updater import assert_equal, options_of, run, saved, updater_of

from ostinato.errors import StateError
from ostinato.loop import Trainer
from ostinato.loop.reporter import report
from ostinato.swap import updater as updater_module
from ostinato.swap.rate_finding import STOP_REASON, RateSearch, sweep
from ostinato.swap.step import StepLosses
from ostinato.swap.updater import SwapUpdater

CASES = {
    "plain": (),
    "accumulation": ("optimizer.gradient_accumulation=3",),
    "autoclip": ("optimizer.gradient_clipping=autoclip", "optimizer.clipping_value=5"),
    "lion": ("optimizer.optimizer=lion", "optimizer.weight_decay=0.01"),
    "half precision": ("network.mixed_precision=true", "optimizer.gradient_accumulation=2"),
}


def assert_trees_equal(one: Any, other: Any, place: str = "state") -> None:
    """Equal to the bit, tensors and arrays included."""
    assert type(one) is type(other), place
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, place
        assert one.equal(other), place
    elif isinstance(one, np.ndarray):
        assert np.array_equal(one, other), place
    elif isinstance(one, dict):
        assert list(one) == list(other), place
        for name, value in one.items():
            assert_trees_equal(value, other[name], f"{place}.{name}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), place
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_trees_equal(left, right, f"{place}[{number}]")
    else:
        assert one == other, place


class Scaler:
    """Stands for the loss scaler that only an accelerator has: a growing scale, and steps that are left out."""

    def __init__(self) -> None:
        self.scale_now = 8.0

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.scale_now

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad /= self.scale_now

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    def update(self) -> None:
        self.scale_now *= 1.5

    def state_dict(self) -> dict[str, float]:
        return {"scale": self.scale_now}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.scale_now = state["scale"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("trained", [0, 4])
def test_everything_is_as_before_to_the_bit_and_training_goes_on_as_if_nothing_had_been(
    case: str, trained: int
) -> None:
    options = options_of(*CASES[case])
    searched, undisturbed = updater_of(options, warm_up=5), updater_of(options, warm_up=5)
    for updater in (searched, undisturbed):
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        run(updater, trained)
    before = saved(searched)
    torch.rand(3), random.random(), np.random.rand()
    searched.load_state_dict(before)

    finder = sweep(searched, 12)

    assert len(finder.points) == 12
    assert_trees_equal(saved(searched), before)
    assert run(searched, 4) == run(undisturbed, 4)
    assert_equal(searched, undisturbed)


def test_a_loss_scaler_is_as_before() -> None:
    updater = updater_of(options_of())
    updater._scaler = Scaler()  # type: ignore[assignment]
    run(updater, 2)
    before = saved(updater)
    sweep(updater, 5)
    assert_trees_equal(saved(updater), before)


def test_random_numbers_that_the_model_draws_come_again() -> None:
    updater = updater_of(options_of())
    updater.model.encoder.register_forward_hook(
        lambda _m, _i, output: [part + 0.01 * torch.rand(()) for part in output]
    )
    before = saved(updater)
    sweep(updater, 3)
    assert_trees_equal(saved(updater), before)


def rates_of_steps(updater: SwapUpdater, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rate of each of the optimizer's steps from now on."""
    seen: list[float] = []
    real = updater.optimizer.step

    def step(*arguments: Any, **settings: Any) -> Any:
        seen.append(updater.optimizer.param_groups[0]["lr"])
        return real(*arguments, **settings)

    monkeypatch.setattr(updater.optimizer, "step", step)
    return seen


def test_each_step_uses_the_rate_of_its_batch_whatever_the_warm_up_says(monkeypatch: pytest.MonkeyPatch) -> None:
    updater = updater_of(options_of(), warm_up=100)
    seen = rates_of_steps(updater, monkeypatch)
    finder = sweep(updater, 10)
    assert seen == [point.used for point in finder.points]
    assert seen[0] == pytest.approx(1e-10)
    assert updater.forced_rate is None


def test_with_accumulation_the_rates_reach_the_end_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    updater = updater_of(options_of("optimizer.gradient_accumulation=3"))
    run(updater, 2)  # two batches wait for the next step; they are not part of the search
    seen = rates_of_steps(updater, monkeypatch)
    finder = sweep(updater, 12)
    assert seen == [finder.points[number].used for number in (2, 5, 8, 11)]
    assert finder.points[-1].rate == pytest.approx(0.1)
    assert updater.state_dict()["collected"] == 2


def test_it_is_as_before_too_when_a_batch_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    updater = updater_of(options_of())
    run(updater, 1)
    before = saved(updater)
    real = updater.loader.next_batch
    count = 0

    def next_batch() -> Any:
        nonlocal count
        count += 1
        if count == 4:
            raise OSError("a face is gone")
        return real()

    monkeypatch.setattr(updater.loader, "next_batch", next_batch)
    with pytest.raises(OSError, match="a face is gone"):
        sweep(updater, 10)
    assert_trees_equal(saved(updater), before)


# --- as an extension --------------------------------------------------------------------------------------------------


class Search:
    """A search within a trainer, and what came of it."""

    def __init__(self, folder: Path, *overrides: str) -> None:
        self.options = options_of(*overrides)
        self.updater = updater_of(self.options)
        self.told: list[str] = []
        self.found = 0
        self.trainer = Trainer(self.updater, (3, "iteration"), out=folder)
        self.extension = RateSearch(
            self.updater, self.options.rate_finder, folder, tell=self.told.append, found=self._note
        )
        self.trainer.extend(self.extension)
        self.rates: list[float] = []
        self.trainer.extend(lambda _: self.rates.append(self.updater.optimizer.param_groups[0]["lr"]), name="rates")

    def _note(self) -> None:
        self.found += 1


def with_losses(monkeypatch: pytest.MonkeyPatch, loss: Callable[[int], float]) -> None:
    """Let the updater report losses of our own while it searches, and train nothing then."""
    real = SwapUpdater.update
    count = 0

    def update(self: SwapUpdater) -> None:
        nonlocal count
        if self.forced_rate is None:
            count = 0
            real(self)
            return
        count += 1
        report("loss/total", loss(count))

    monkeypatch.setattr(SwapUpdater, "update", update)


def falling(batch: int) -> float:
    return 1.0 if batch < 50 else 1.0 - (batch - 50) / 100


FEW = "rate_finder.lr_finder_iterations=100"


def test_the_rate_that_was_found_is_trained_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_losses(monkeypatch, falling)
    search = Search(tmp_path, FEW, "rate_finder.lr_finder_strength=aggressive")
    search.trainer.run()
    assert search.rates == [pytest.approx(0.02)] * 3
    assert search.found == 1
    assert search.updater.rate.found == pytest.approx(0.02)
    assert any("learning rate 0.02: the loss was lowest at 0.1, and the strength aggressive" in t for t in search.told)
    (table,) = tmp_path.glob("learning_rate_finder_*.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == 100
    assert float(rows[-1]["loss"]) == falling(100)
    assert list(tmp_path.glob("*.png")) == []


def test_graph_and_set_draws_the_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_losses(monkeypatch, falling)
    search = Search(tmp_path, FEW, "rate_finder.lr_finder_mode=graph_and_set")
    search.trainer.run()
    assert search.trainer.status == "finished"
    (picture,) = tmp_path.glob("learning_rate_finder_*.png")
    assert picture.with_suffix(".csv").exists()
    drawn = cv2.imread(str(picture))
    assert drawn is not None
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) > 10


def test_graph_and_exit_keeps_the_rate_and_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_losses(monkeypatch, falling)
    search = Search(tmp_path, FEW, "rate_finder.lr_finder_mode=graph_and_exit")
    search.trainer.run()
    assert (search.trainer.status, search.trainer.stop_reason) == ("stopped", STOP_REASON)
    assert (search.rates, search.found) == ([], 1)
    assert len(list(tmp_path.glob("*.png"))) == 1


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda batch: float(batch), "the loss was lowest at 1.2e-10, the very beginning"),
        (lambda _: math.nan, "not even the first loss was a finite number"),
    ],
)
def test_when_nothing_is_found_it_says_so_and_nothing_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: Callable[[int], float], message: str
) -> None:
    with_losses(monkeypatch, loss)
    search = Search(tmp_path, FEW)
    before = saved(search.updater)
    with pytest.raises(StateError, match=message) as caught:
        search.trainer.run()
    assert "Nothing of the run has changed" in str(caught.value)
    assert_trees_equal(saved(search.updater), before)
    assert search.found == 0
    assert len(list(tmp_path.glob("*.png"))) == len(list(tmp_path.glob("*.csv"))) == 1


def test_when_the_very_first_loss_is_no_number_it_says_whose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(tmp_path, FEW)
    real = updater_module.training_step

    def step(*arguments: Any, **settings: Any) -> StepLosses:
        losses = real(*arguments, **settings)
        weighted = tuple({**one, "mse": torch.tensor(math.nan)} for one in losses.sides["b"].weighted)
        sides = {**losses.sides, "b": replace(losses.sides["b"], total=torch.tensor(math.nan), weighted=weighted)}
        return replace(losses, total=torch.tensor(math.nan), sides=sides)

    monkeypatch.setattr(updater_module, "training_step", step)
    with pytest.raises(StateError) as caught:
        search.trainer.run()
    assert "not even the first loss was a finite number. Side b: output 64 x 64 pixels, loss function mse." in str(
        caught.value
    )


def test_a_search_that_ended_early_says_where_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for loss, why in (
        (lambda batch: math.nan if batch == 80 else falling(batch), "the loss of batch 80 of 100 was no number, at"),
        (lambda batch: 1e9 if batch == 80 else falling(batch), "at batch 80 of 100, rate 1.3e-03, the smoothed loss"),
    ):
        with_losses(monkeypatch, loss)
        search = Search(tmp_path, FEW)
        search.trainer.run()
        assert any(text.startswith(f"the search ended early: {why}") for text in search.told), search.told
    with_losses(monkeypatch, lambda batch: math.nan if batch == 60 else 1 + batch / 1000)
    with pytest.raises(
        StateError, match="has not come down since; the loss of batch 60 of 100 was no number"
    ) as caught:
        Search(tmp_path, FEW).trainer.run()
    assert "--set rate_finder.lr_finder_iterations=200" in str(caught.value)


@pytest.mark.parametrize(
    ("batches", "lowest", "doubt"),
    [
        (100, 75, "100 batches are few"),
        (600, 600, "The loss was still falling at the highest rate"),
        (600, 200, "is far from the usual 1e-06 to 0.0001"),
        (600, 400, ""),
    ],
)
def test_what_speaks_against_a_rate_that_was_found_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int, lowest: int, doubt: str
) -> None:
    with_losses(monkeypatch, lambda batch: 2.0 - batch / batches if batch <= lowest else 3.0)
    search = Search(tmp_path, f"rate_finder.lr_finder_iterations={batches}")
    search.trainer.run()
    said = search.told[next(i for i, text in enumerate(search.told) if text.startswith("learning rate ")) + 1 :]
    assert any(doubt in text for text in said) if doubt else said == []
    # Asking for what is configured already would change nothing.
    assert not any("optimizer.learning_rate=5e-05" in text for text in said)


def test_a_stop_while_searching_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(tmp_path, FEW)
    before = saved(search.updater)
    with_losses(monkeypatch, lambda batch: search.trainer.request_stop("signal") or 1.0 if batch == 5 else 1.0)
    search.trainer.run()
    assert search.trainer.status == "stopped"
    assert search.rates == []
    assert search.told[-1].startswith("the search for the learning rate was stopped at batch 5; nothing has changed")
    assert_trees_equal(saved(search.updater), before)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_costs_the_table_and_not_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_losses(monkeypatch, falling)

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ostinato.swap.rate_finding.Files.replace", refuse)
    search = Search(tmp_path, FEW)
    search.trainer.run()
    assert search.rates == [pytest.approx(0.01)] * 3
    assert any("could not be written: No space left on device" in text for text in search.told)


def test_two_searches_never_write_over_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_losses(monkeypatch, falling)
    for number in range(1, 4):
        search = Search(tmp_path, FEW, "rate_finder.lr_finder_mode=graph_and_set")
        search.trainer.run()
        assert len(list(tmp_path.glob("*.csv"))) == len(list(tmp_path.glob("*.png"))) == number
