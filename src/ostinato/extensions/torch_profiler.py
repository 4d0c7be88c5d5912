"""Records with PyTorch's profiler what a few iterations do."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ostinato.extensions.saved_format import check_format
from ostinato.loop import PRIORITY_SNAPSHOT, Extension, TrainerView
from ostinato.loop.triggers.units import exact_number
from ostinato.runs.atomic import Files

_log = logging.getLogger(__name__)

STATE_FORMAT = 1


class TorchProfiler(Extension):
    """Lets PyTorch's profiler watch a window of iterations and writes what it saw as a Chrome trace (PF-1).

    A *cycle* is ``wait`` iterations in which nothing happens, ``warmup`` iterations in which the profiler runs and
    throws away what it sees (its first steps cost more), and ``active`` iterations that are recorded. With ``wait=10``,
    ``warmup=2``, ``active=3`` and one cycle, the iterations 13, 14 and 15 of the run are recorded. Outside of a window
    this costs one comparison per iteration.

    The trace ``trace_<cycle>_<first>-<last>.json`` (``rank<r>_trace_...`` where several ranks train) opens in Perfetto
    (ui.perfetto.dev) and in chrome://tracing. It takes its name when it is whole.

    The profiler never ends the run: what goes wrong with it is logged, and training goes on without it. If the run ends
    in the middle of a window, what was recorded until then is written.

    A resumed run records only the windows that are missing: those that its saved state knows, or whose whole trace is
    in the folder, are not recorded again. One that was cut off is recorded from the iteration at which the run goes on.

    :param wait: iterations before the profiler starts, 0 or more.
    :param warmup: iterations whose record is thrown away, 0 or more.
    :param active: iterations that are recorded, 1 or more.
    :param repeat: how many cycles there are, one after the other; 0 switches the profiler off.
    :param folder: where traces go; by default ``profile`` in the trainer's folder.
    :param record_shapes: note the shapes of all inputs; costs time.
    :param profile_memory: note what is allocated and freed; costs time.
    :param with_stack: note the lines of the program; costs much time.
    :raises ArgumentTypeError: when a number is none.
    :raises ArgumentValueError: when it is not whole or out of range.
    """

    trigger = (1, "iteration")
    # The last before whoever saves, so that a state saved in the iteration that ends a window knows of it.
    priority = PRIORITY_SNAPSHOT + 1
    name = "torch_profiler"

    def __init__(
        self,
        wait: int = 10,
        warmup: int = 2,
        active: int = 3,
        repeat: int = 1,
        *,
        folder: str | os.PathLike[str] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
    ) -> None:
        self._wait = _count(wait, "wait", 0)
        self._warmup = _count(warmup, "warmup", 0)
        self._active = _count(active, "active", 1)
        self._repeat = _count(repeat, "repeat", 0)
        self._folder = None if folder is None else Path(folder)
        self._settings = {
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
        }
        self._recorded = 0  # windows
        self._prefix = ""  # of file names
        self._profiler: Any = None
        self._next = 0  # the completed iteration from which on there is something to do; -1: nothing any more
        self._first = 0  # the first iteration that is recorded, while the profiler runs

    def initialize(self, trainer: TrainerView) -> None:
        """Find the next window; if it begins with the first update, start."""
        iteration = trainer.updater.state.iteration
        self._prefix = _prefix(trainer)
        if iteration > 0:  # a fresh run may find the traces of an older one
            while self._recorded < self._repeat and self._is_on_disk(trainer, self._recorded + 1):
                self._recorded += 1
        self._plan(iteration)
        self(trainer)

    def _folder_of(self, trainer: TrainerView) -> Path:
        return trainer.out / "profile" if self._folder is None else self._folder

    def _is_on_disk(self, trainer: TrainerView, cycle: int) -> bool:
        """Whether the whole trace of a cycle is there, from a process whose state was not saved any more."""
        name = re.compile(rf"{self._prefix}trace_{cycle}_(\d+)-(\d+)\.json")
        folder = self._folder_of(trainer)
        matches = [name.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
        return any(match and int(match[2]) - int(match[1]) + 1 >= self._active for match in matches)

    def _plan(self, iteration: int) -> None:
        """Note when the next window begins."""
        if self._recorded >= self._repeat:
            self._next = -1  # no iteration has this number
            return
        begins = self._recorded * (self._wait + self._warmup + self._active) + self._wait
        self._next = max(begins, iteration)  # a window that was cut off, or new in a run under way, begins now

    def __call__(self, trainer: TrainerView) -> None:
        """Start, step or stop the profiler when it is time."""
        iteration = trainer.updater.state.iteration
        if self._next < 0 or iteration < self._next:
            return
        try:
            self._go_on(trainer, iteration)
        except Exception as error:  # a profiler that is in use already, a disk that is full: no reason to stop
            self._give_up(error)

    def _go_on(self, trainer: TrainerView, iteration: int) -> None:
        if self._profiler is None:
            self._start(iteration)
            return
        self._profiler.step()
        if iteration >= self._first - 1 + self._active:
            self._stop_and_write(trainer, iteration)
            self._recorded += 1
            self._plan(iteration)
            if self._next == iteration:  # wait is 0: the next window follows at once
                self._start(iteration)

    def _start(self, iteration: int) -> None:
        from torch.profiler import ProfilerActivity, profile, schedule

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        plan = schedule(wait=0, warmup=self._warmup, active=self._active, repeat=1)
        profiler = profile(activities=activities, schedule=plan, **self._settings)
        profiler.start()
        self._profiler = profiler
        self._first = iteration + self._warmup + 1

    def _stop_and_write(self, trainer: TrainerView, iteration: int) -> None:
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        folder = self._folder_of(trainer)
        path = folder / f"{self._prefix}trace_{self._recorded + 1}_{self._first}-{iteration}.json"
        files = Files()
        files.make_folder(folder)
        temporary = path.with_name(f".tmp-{path.name}")
        profiler.export_chrome_trace(str(temporary))
        files.rename(temporary, path)
        _log.info("TorchProfiler: iterations %d to %d are recorded in %s", self._first, iteration, path)

    def _give_up(self, error: Exception) -> None:
        _log.warning("TorchProfiler: %s: %s. Training goes on without the profiler.", type(error).__name__, error)
        self._next = -1
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            try:
                profiler.stop()
            except Exception as second:  # said already
                _log.debug("stopping the profiler: %s", second)

    def finalize(self, trainer: TrainerView) -> None:
        """Stop the profiler; write what was recorded of a window that the end of the run cut off."""
        if self._profiler is None:
            return
        iteration = trainer.updater.state.iteration
        try:
            if iteration >= self._first:
                self._stop_and_write(trainer, iteration)
            else:
                profiler, self._profiler = self._profiler, None
                profiler.stop()
        except Exception as error:  # the run itself has ended as it should
            self._give_up(error)

    def state_dict(self) -> dict[str, Any]:
        """How many windows are recorded."""
        return {"format": STATE_FORMAT, "recorded": self._recorded}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Record only the windows that are missing.

        :raises ArgumentValueError: for a state of another format.
        """
        check_format(state, STATE_FORMAT, "TorchProfiler")
        self._recorded = int(state["recorded"])


def _prefix(trainer: TrainerView) -> str:
    return f"rank{trainer.group.rank}_" if trainer.group.size > 1 else ""


def _count(value: Any, name: str, minimum: int) -> int:
    return int(exact_number(value, name, "TorchProfiler", whole=True, minimum=minimum))
