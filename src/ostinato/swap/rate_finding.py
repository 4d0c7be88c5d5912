"""Finding a learning rate for a swap training, before its first update."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import cv2
import torch
from torch import Tensor

from ostinato.config import OptimizerOptions, option_records
from ostinato.config.rate_finder import RateFinderOptions
from ostinato.data.file_names import shown_name
from ostinato.errors import StateError
from ostinato.loop import PRIORITY_WRITER, Extension, TrainerView, read_scalars
from ostinato.loop.reporter import scope
from ostinato.optim.rate_finder import STRENGTHS, RateFinder, rate_table
from ostinato.runs.atomic import Files
from ostinato.swap.face_folders import Tell
from ostinato.swap.loss_names import explain_loss_names
from ostinato.swap.rate_curve import draw_rate_curve
from ostinato.swap.updater import SwapUpdater

STOP_REASON = "rate found"
"""Why a run stops after the search, in the mode ``graph_and_exit``."""

_TOLD = 10  # how often the search says where it is
_FEW = 500  # batches below which what was found is doubtful


def sweep(
    updater: SwapUpdater,
    batches: int,
    *,
    wants_stop: Callable[[], bool] = lambda: False,
    after_batch: Callable[[RateFinder], None] = lambda _: None,
    observation: dict[str, Any] | None = None,
) -> RateFinder:
    """Train batches with rising learning rates and watch the loss; afterwards everything is as it was, to the bit.

    That is the model, the optimizer, clipping history, loss scaler, collected gradients, counters, the place in the
    data and all random generators. With gradient accumulation the rate rises with every batch, and each step of the
    optimizer uses the one in force by then.

    Memory: a copy of the updater's state on the host while it lasts: the model, and its moments if there are any.

    :param updater: in any state; its loader is open.
    :param batches: how many, if the loss does not end it earlier.
    :param wants_stop: asked before each batch; when it says so, the search is left unfinished.
    :param after_batch: told after each batch.
    :param observation: takes what the updater reports; that of the last batch is left in it.
    """
    finder = RateFinder(batches)
    before = _on_host(updater.state_dict())
    observation = {} if observation is None else observation
    try:
        updater.drop_collected()
        with scope(observation):
            while not finder.is_over and not wants_stop():
                updater.forced_rate = finder.rate
                updater.update()
                finder.add(float(observation["loss/total"]))  # waits for the device; nothing else is to be done
                after_batch(finder)
    finally:
        updater.forced_rate = None
        updater.load_state_dict(before)
    return finder


def _on_host(value: Any) -> Any:
    """A copy of a tree, with its tensors in the memory of the host and in their own layout."""
    if isinstance(value, Tensor):
        return torch.empty_like(value, device="cpu").copy_(value)
    if isinstance(value, Mapping):
        return {name: _on_host(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_on_host(part) for part in value)
    return copy.deepcopy(value)


class RateSearch(Extension):
    """Searches for the learning rate when the session begins, and puts it into force.

    It works in ``initialize``, before anything else is initialized, so that nobody measures its batches as training.
    Nothing of the run is touched until the rate is found; a process that is killed before leaves what it found, and the
    next one starts the search again.

    :param updater: the one that trains.
    :param options: batches, mode and strength.
    :param folder: where table and picture go: the run folder.
    :param tell: given each sentence that the user should read.
    :param found: called when the rate is in force.
    """

    priority = PRIORITY_WRITER + 100
    name = "rate_search"
    trigger = None

    def __init__(
        self,
        updater: SwapUpdater,
        options: RateFinderOptions,
        folder: Path,
        *,
        tell: Tell,
        found: Callable[[], None],
    ) -> None:
        self._updater = updater
        self._options = options
        self._folder = folder
        self._tell = tell
        self._found = found

    def __call__(self, trainer: TrainerView) -> None:
        """Nothing; all is done before the first update."""

    def initialize(self, trainer: TrainerView) -> None:
        """Search.

        :raises StateError: no rate was found; everything is as it was.
        """
        options, updater = self._options, self._updater
        batches = options.lr_finder_iterations
        self._tell(
            f"searching for the learning rate: {batches:,} batches with rates from 1e-10 to 0.1; the model is as it "
            "was afterwards"
        )
        observation: dict[str, Any] = {}
        finder = sweep(
            updater,
            batches,
            wants_stop=lambda: trainer.stop_reason is not None,
            after_batch=self._say_where,
            observation=observation,
        )
        if not finder.is_over:
            self._tell(
                f"the search for the learning rate was stopped at batch {len(finder.points):,}; nothing has changed, "
                "and the same command begins it again"
            )
            return
        strength = options.lr_finder_strength
        rate = finder.result(strength)
        self._write(finder, with_picture=rate is None or options.lr_finder_mode != "set")
        if rate is None:
            raise _nothing_found(finder, options, updater, observation)
        assert finder.best is not None
        updater.rate = updater.rate.with_found(rate)
        if finder.ended != "swept":
            self._tell(f"the search ended early: {_why_early(finder)}")
        self._tell(
            f"learning rate {rate:.3g}: the loss was lowest at {finder.best.rate:.3g}, and the strength {strength} "
            f"takes {_share(STRENGTHS[strength])} of that"
        )
        for doubt in _doubts(finder, rate, updater.rate.configured):
            self._tell(doubt)
        self._found()
        if options.lr_finder_mode == "graph_and_exit":
            self._tell("leaving, as lr_finder_mode graph_and_exit says; the same command trains with this rate")
            trainer.request_stop(STOP_REASON)

    def _say_where(self, finder: RateFinder) -> None:
        done = len(finder.points)
        tenths = done * _TOLD // finder.batches
        if finder.is_over or finder.best is None or tenths == (done - 1) * _TOLD // finder.batches:
            return
        last = finder.points[-1]
        self._tell(
            f"searching: batch {done:,} of {finder.batches:,}, rate {last.used:.1e}, "
            f"smoothed loss {last.smoothed:.5f}, lowest {finder.best.smoothed:.5f} at {finder.best.rate:.1e}"
        )

    def _write(self, finder: RateFinder, *, with_picture: bool) -> None:
        table = self._free_name()
        contents = {"a table": (table, rate_table(finder.points).encode())}
        if with_picture:
            _, encoded = cv2.imencode(".png", draw_rate_curve(finder, self._options.lr_finder_strength)[..., ::-1])
            contents["a picture"] = (table.with_suffix(".png"), encoded.tobytes())
        for what, (path, content) in contents.items():
            try:
                Files().replace(path, content)
            except OSError as error:  # the rate is worth more than its picture
                self._tell(f"{shown_name(path)} could not be written: {error.strerror or error}")
            else:
                self._tell(f"the search as {what}: {shown_name(path)}")

    def _free_name(self) -> Path:
        stem = f"learning_rate_finder_{datetime.now(timezone.utc):%Y-%m-%d_%H.%M.%S}"
        names = (self._folder / f"{stem}{mark}.csv" for mark in ("", *(f"_{number}" for number in range(2, 1000))))
        return next(path for path in names if not path.exists() and not path.with_suffix(".png").exists())


def _share(divisor: float) -> str:
    return {10.0: "a tenth", 5.0: "a fifth", 2.5: "two fifths"}[divisor]


def _why_early(finder: RateFinder) -> str:
    last = len(finder.points)
    if finder.ended == "diverged":
        return (
            f"at batch {last:,} of {finder.batches:,}, rate {finder.points[-1].used:.1e}, the smoothed loss was four "
            "times its lowest"
        )
    return f"the loss of batch {last + 1:,} of {finder.batches:,} was no number, at the rate {finder.rate:.1e}"


def _doubts(finder: RateFinder, rate: float, configured: float) -> list[str]:
    """Reasons for which a rate that was found may be no good, in sentences."""
    instead = f"--set optimizer.learning_rate={_usual_rate_besides(configured)}"
    assert finder.best is not None
    doubts = []
    if finder.batches < _FEW:
        # The smoothed loss follows the last 50 batches or so, and among few ones these cover many powers of ten.
        doubts.append(
            f"{finder.batches:,} batches are few: the loss answers late, and the rate may be far too high. "
            "--find-lr-again --set rate_finder.lr_finder_iterations=1000 searches more thoroughly."
        )
    elif finder.ended == "swept" and finder.best.batch > 0.95 * finder.batches:
        doubts.append(
            "The loss was still falling at the highest rate, so the search has not seen where it becomes too high. "
            f"Watch the first iterations; a lower rate may be better ({instead})."
        )
    low, high = _usual()
    if not low / 10 <= rate <= high * 10:
        doubts.append(
            f"{rate:.3g} is far from the usual {low:g} to {high:g}. Look at the curve before you trust "
            f"it; {instead} puts a usual rate in its place."
        )
    return doubts


def _usual_rate_besides(configured: float) -> str:
    """A rate to advise: one that is not asked for already, since asking again for the same changes nothing."""
    return "5e-05" if configured != 5e-05 else "4e-05"


def _usual() -> tuple[float, float]:
    (usual,) = (r.usual for r in option_records(OptimizerOptions) if r.path == "learning_rate")
    assert usual is not None
    return usual


def _nothing_found(
    finder: RateFinder, options: RateFinderOptions, updater: SwapUpdater, observation: Mapping[str, Any]
) -> StateError:
    if finder.best is None:
        names = [name for name in observation if name.startswith("loss/")]
        values = read_scalars([observation[name] for name in names])
        wrong = [name for name, value in zip(names, values, strict=True) if not math.isfinite(value)]
        whose = explain_loss_names(wrong, updater.model.output_sizes).removesuffix(".")
        why = f"not even the first loss was a finite number. {whose}"
        advice = "Look at the faces and the options: training cannot work like this with any rate."
    else:
        why = f"the loss was lowest at {finder.best.rate:.1e}, the very beginning, and has not come down since"
        if finder.ended != "swept":
            why += f"; {_why_early(finder)}"
        batches = options.lr_finder_iterations
        more = f" with more batches (--set rate_finder.lr_finder_iterations={min(10_000, 2 * batches)}) or"
        advice = (
            f"Search{more if batches < 10_000 else ''} with a larger -b, or leave -r and --find-lr-again out and give "
            f"a rate with --set optimizer.learning_rate={_usual_rate_besides(updater.rate.configured)}."
        )
    return StateError(
        f"The search has found no learning rate: {why}.",
        advice=f"{advice} Nothing of the run has changed.",
        batches=len(finder.points),
    )
