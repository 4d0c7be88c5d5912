"""What can go wrong in a training, to be ordered for a process that :mod:`command_server` starts, or for this one.

Each function disturbs the process it is called in. They are named in a request together with their arguments.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import time
from pathlib import Path
from typing import Any

import torch

from ostinato.runs import atomic
from ostinato.swap import step as step_module
from ostinato.swap import updater as updater_module
from ostinato.swap.updater import SwapUpdater


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at_operation(moment: str, operation: str, name: str, number: int = 0) -> None:
    """Die before or after a file operation of the run folder.

    :param operation: a pattern for its name in :data:`ostinato.runs.atomic.OPERATIONS`.
    :param name: a pattern for the whole name of the file or folder.
    :param number: which of the operations that fit, from 0.
    """
    count = -1

    def hook(now: str, done: str, path: Path) -> None:
        nonlocal count
        if now == moment and re.fullmatch(operation, done) and re.fullmatch(name, path.name):
            count += 1
            if count == number:
                _die()

    atomic.set_hook(hook)


def kill_at(point: str, number: int, after: bool = False) -> None:
    """Die at the number-th call (from 0) of a function of the training."""
    from ostinato.extensions import metrics_writer
    from ostinato.faces.loader import SwapLoader
    from ostinato.runs.folder import RunFolder
    from ostinato.runs.writer import GenerationWriter
    from ostinato.swap.watching import Preview

    owner, name = {
        "update": (SwapUpdater, "update"),
        "optimizer": (SwapUpdater, "_step"),
        "preview": (Preview, "draw"),
        "submit": (GenerationWriter, "submit"),
        "commit": (RunFolder, "commit"),
        "metrics": (metrics_writer.MetricsWriter, "flush"),
        "purge": (metrics_writer, "purge_lines_after"),
        "batch": (SwapLoader, "next_batch"),
    }[point]
    real = getattr(owner, name)
    count = -1

    def dying(*arguments: Any, **settings: Any) -> Any:
        nonlocal count
        count += 1
        if count == number and not after:
            _die()
        result = real(*arguments, **settings)
        if count == number:
            _die()
        return result

    setattr(owner, name, dying)


def fail_writes(error: str, first: int, last: int, operation: str = "write") -> None:
    """Let the writes of the generations of these iterations fail."""
    number = getattr(errno, error)

    def hook(moment: str, now: str, path: Path) -> None:
        iteration = path.parent.name.removeprefix(".tmp-")
        if moment == "before" and now == operation and iteration.isdigit() and first <= int(iteration) <= last:
            raise OSError(number, os.strerror(number), str(path))

    atomic.set_hook(hook)


def no_room(first: int, last: int, size: int) -> None:
    """Between two iterations the system lets no file of this process grow beyond a size: logs, events, pictures and
    generations alike."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    real = SwapUpdater.update

    def update(self: SwapUpdater) -> None:
        real(self)
        if self.state.iteration == first:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
        if self.state.iteration == last + 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    SwapUpdater.update = update  # type: ignore[method-assign]


def busy_file(error: str, times: int) -> None:
    """Let the first renames of a generation to its name fail, as another program's grip on it would."""
    number = getattr(errno, error)
    left = times

    def hook(moment: str, operation: str, path: Path) -> None:
        nonlocal left
        if (moment, operation) == ("before", "rename") and path.name.isdigit() and left:
            left -= 1
            raise OSError(number, os.strerror(number), str(path))

    atomic.set_hook(hook)


def nan_loss(iteration: int, side: int, above: float = 0.0) -> None:
    """Give one side a batch that makes its loss, and all gradients, not a number.

    :param above: only while the learning rate is higher than that.
    """
    real = step_module._floats
    before = SwapUpdater.update

    def update(self: SwapUpdater) -> None:
        is_due = self.state.iteration + 1 == iteration and self.rate.value > above

        def floats(images: torch.Tensor) -> torch.Tensor:
            faces = real(images)
            if is_due and faces.shape[2] == 3:
                faces[side] *= float("nan")
            return faces

        step_module._floats = floats
        before(self)

    SwapUpdater.update = update  # type: ignore[method-assign]


def nan_gradient(iteration: int) -> None:
    """Ruin a gradient of one iteration, and no loss."""
    real = SwapUpdater._step

    def step(self: SwapUpdater) -> None:
        if self.state.iteration + 1 == iteration:
            next(self.model.parameters()).grad.view(-1)[0] = float("inf")  # type: ignore[union-attr]
        real(self)

    SwapUpdater._step = step  # type: ignore[method-assign]


def overflow(after: int, above: float = 0.0, scale: float = 65536.0) -> None:
    """Train with a loss scaler, as on an accelerator, and let the gradients of all iterations after one overflow.

    :param above: only while the learning rate is higher than that.
    :param scale: what the scaler begins with.
    """
    real, init = SwapUpdater._step, SwapUpdater.__init__

    def prepare(self: SwapUpdater, *arguments: Any, **settings: Any) -> None:
        init(self, *arguments, **settings)
        self._scaler = torch.amp.GradScaler("cpu", init_scale=scale)

    def step(self: SwapUpdater) -> None:
        if self.state.iteration >= after and self.rate.value > above:
            next(self.model.parameters()).grad.view(-1)[0] = float("inf")  # type: ignore[union-attr]
        real(self)

    SwapUpdater.__init__, SwapUpdater._step = prepare, step  # type: ignore[method-assign]


_NO_MEMORY = (
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4294967296 bytes. Error code 12 (Cannot allocate memory)"
)


def no_memory_for_model() -> None:
    """Let building the model run out of memory."""
    from ostinato.swap import training

    def build(*_: Any) -> None:
        raise RuntimeError(_NO_MEMORY)

    training.build_swap_model = build  # type: ignore[assignment]


def no_memory(iteration: int) -> None:
    """Let the forward pass of an update run out of memory, in torch's words for a processor."""
    real = updater_module.training_step
    count = 0

    def step(*arguments: Any, **settings: Any) -> Any:
        nonlocal count
        count += 1
        if count == iteration:
            raise RuntimeError(_NO_MEMORY)
        return real(*arguments, **settings)

    updater_module.training_step = step


def slow_updates(seconds: float, after: int = 0, say: bool = False) -> None:
    """Make every update after an iteration last longer, so that a test finds the training at work.

    :param say: print when such an update has begun.
    """
    real = SwapUpdater.update

    def update(self: SwapUpdater) -> None:
        if self.state.iteration >= after:
            if say:
                print(f"update {self.state.iteration + 1} takes its time", flush=True)
            time.sleep(seconds)
        real(self)

    SwapUpdater.update = update  # type: ignore[method-assign]


def hold_update(after: int, path: str) -> None:
    """Print that the update after an iteration waits, and let it wait for a file, so that a test can do something
    before it goes on, however slow the machine is."""
    real = SwapUpdater.update

    def update(self: SwapUpdater) -> None:
        if self.state.iteration == after and not os.path.exists(path):
            print(f"update {after + 1} waits", flush=True)
            while not os.path.exists(path):
                time.sleep(0.02)
        real(self)

    SwapUpdater.update = update  # type: ignore[method-assign]


def slow_saves(seconds: float) -> None:
    """Make every commit last longer, so that a test finds it at work."""
    from ostinato.runs.folder import RunFolder

    real = RunFolder.commit

    def commit(self: RunFolder, packed: Any) -> Any:
        time.sleep(seconds)
        return real(self, packed)

    RunFolder.commit = commit  # type: ignore[method-assign]


def note_steps(path: str) -> None:
    """Write the settings of the optimizer at each of its steps to a file, one JSON object a line."""
    real = SwapUpdater._step

    def step(self: SwapUpdater) -> None:
        seen = {"iteration": self.state.iteration + 1, "groups": []}
        real(self)
        for group in self.optimizer.param_groups:
            numbers = {key: value for key, value in group.items() if isinstance(value, (int, float, bool))}
            seen["groups"].append(numbers | {"betas": list(group["betas"])})
        with open(path, "a") as file:
            file.write(json.dumps(seen) + "\n")

    SwapUpdater._step = step  # type: ignore[method-assign]
