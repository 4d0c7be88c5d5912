"""What an iteration costs in which nothing fires, counted and not timed (PERF-1).

Every operation of the interpreter, every call, every operation of torch and, in a process of its own, every system call
is watched while the loop runs idle. What would be too much is tried as well, to see that it is noticed.
"""

from __future__ import annotations

import ctypes
import dis
import gc
import logging
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch
from loop_stand_ins import CountingUpdater
from rank_processes import run_on_ranks
from torch.utils._python_dispatch import TorchDispatchMode

from ostinato.loop import AnyTrigger, IntervalTrigger, Trainer, report
from ostinato.loop.triggers import EarlyStoppingTrigger, ManualScheduleTrigger, MinValueTrigger

_PLAIN_BUILTINS = {"getattr", "isinstance", "callable", "len", "any", "all", "min", "max", "isfinite", "detach"}

FIRST, LAST = 5, 15
"""The iterations between which everything is watched."""

_TEXT_MAKERS = {"str", "repr", "format", "ascii"}


class Interpreter:
    """Notes what the interpreter does between :meth:`start` and :meth:`stop`."""

    def __init__(self) -> None:
        self.formatting: list[str] = []
        """Operations that make text."""
        self.calls: list[str] = []
        """Calls of anything but functions and methods of the loop, the test, and plain builtins."""
        self.number_of_calls = 0
        self._operations: dict[CodeType, dict[int, dis.Instruction]] = {}

    def start(self, trainer: Any) -> None:
        frame: Any = sys._getframe(1)
        sys.settrace(self._trace)
        while frame is not None:  # also what runs already: the loop itself
            frame.f_trace, frame.f_trace_opcodes = self._trace, True
            frame = frame.f_back
        sys.setprofile(self._profile)

    def stop(self) -> None:
        sys.setprofile(None)
        sys.settrace(None)

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            code = frame.f_code
            if code not in self._operations:
                self._operations[code] = {operation.offset: operation for operation in dis.get_instructions(code)}
            operation = self._operations[code][frame.f_lasti]
            if (
                operation.opname.startswith(("FORMAT_", "CONVERT_VALUE", "BUILD_STRING"))
                or (operation.opname == "LOAD_GLOBAL" and operation.argval in _TEXT_MAKERS)
                # Of two texts it is formatting; of two numbers a remainder, which nobody needs here.
                or operation.opname == "BINARY_MODULO"
                or (operation.opname == "BINARY_OP" and operation.argrepr in ("%", "%="))
            ):
                self.formatting.append(f"{operation.opname} {operation.argrepr} in {code.co_name}")
        return self._trace

    def _profile(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            self.number_of_calls += 1
            module = frame.f_globals["__name__"]
            if not module.startswith("ostinato.loop.") and module not in (__name__, CountingUpdater.__module__):
                self.calls.append(f"{module}.{frame.f_code.co_name}")
        elif event == "c_call":
            self.number_of_calls += 1
            owner = getattr(argument, "__self__", None)
            if argument.__name__ not in _PLAIN_BUILTINS and not isinstance(owner, list | dict):
                self.calls.append(argument.__name__)


class Torch(TorchDispatchMode):
    """Notes the operations of torch between :meth:`start` and :meth:`stop`."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def start(self, trainer: Any) -> None:
        self.__enter__()

    def stop(self) -> None:
        self.__exit__(None, None, None)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations.append(function.__name__)
        return function(*args, **(kwargs or {}))


def run_idle_loop(watched: Any, updater: CountingUpdater, extra: Callable[[Any], Any] | None = None) -> Any:
    """Run a trainer with extensions and triggers of every kind, none of which fires while it is watched.

    :param watched: started and stopped; returned for convenience.
    :param extra: called with the trainer in every iteration, as something that the loop might do.
    """
    never = 10**6
    trainer = Trainer(updater, (never, "iteration"))
    shared = IntervalTrigger(never, "iteration")
    triggers: list[Any] = [
        (never, "iteration"),
        shared,
        AnyTrigger([shared, IntervalTrigger(never, "epoch")]),
        ManualScheduleTrigger([never], "iteration"),
        MinValueTrigger("loss", (never, "iteration")),
        EarlyStoppingTrigger((never, "iteration"), "loss"),
    ]
    for number, trigger in enumerate(triggers):
        trainer.extend(print, f"e{number}", trigger=trigger, priority=(-200 if number == 4 else 100))
    if extra is not None:
        trainer.extend(print, "extra", trigger=lambda t: bool(extra(t)) and False, priority=50)

    def at_the_end(trainer: Any) -> bool:
        if trainer.updater.state.iteration >= LAST:
            watched.stop()
            trainer.request_stop()
        return False

    trainer.extend(watched.start, "start", trigger=ManualScheduleTrigger([FIRST], "iteration"), priority=1000)
    trainer.extend(print, "end", trigger=at_the_end, priority=-1000)
    try:
        trainer.run()
    finally:
        sys.setprofile(None)
        sys.settrace(None)
    assert trainer.updater.state.iteration == LAST
    return watched


def test_an_idle_iteration_makes_no_text_and_calls_only_functions_of_the_loop() -> None:
    watched = run_idle_loop(Interpreter(), CountingUpdater(updates_per_epoch=10**6))
    assert watched.formatting == []
    assert [name for name in watched.calls if name not in ("setprofile", "settrace")] == []
    # An update with its counters, eight triggers of which some hold others, a limit; each reads a counter.
    assert watched.number_of_calls <= 60 * (LAST - FIRST + 1)


class Reporting(CountingUpdater):
    """Reports a loss with a history, as training does."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = torch.ones((), requires_grad=True)

    def update(self) -> None:
        report("loss", self.loss)
        super().update()


def test_an_idle_iteration_waits_for_no_device() -> None:
    watched = run_idle_loop(Torch(), Reporting())
    assert watched.operations == ["detach.default"] * (
        LAST - FIRST
    )  # the same number without its history: nothing is read


@pytest.mark.parametrize(
    "work",
    [
        lambda trainer: f"{trainer.updater.state.iteration}",
        lambda trainer: f"{trainer!r}",
        lambda trainer: str(trainer.updater.state.iteration),
        lambda trainer: "iteration %d" % trainer.updater.state.iteration,  # noqa: UP031
    ],
)
def test_formatting_would_be_noticed(work) -> None:
    assert run_idle_loop(Interpreter(), CountingUpdater(), work).formatting


@pytest.mark.parametrize(
    ("work", "name"),
    [
        (lambda trainer: "iteration {}".format(trainer.updater.state.iteration), "format"),  # noqa: UP032
        (lambda trainer: logging.getLogger("x").debug("iteration"), "debug"),
        (lambda trainer: time.monotonic(), "monotonic"),
        (lambda trainer: os.getpid(), "getpid"),
        (lambda trainer: trainer.elapsed_time, "monotonic"),
    ],
)
def test_calls_would_be_noticed(work, name) -> None:
    watched = run_idle_loop(Interpreter(), CountingUpdater(), work)
    assert [call for call in watched.calls if call.split(".")[-1] == name]


def test_reading_a_device_would_be_noticed() -> None:
    loss = torch.ones(())
    watched = run_idle_loop(Torch(), CountingUpdater(), lambda trainer: loss.item())
    assert "_local_scalar_dense.default" in watched.operations


# --- system calls ----------------------------------------------------------------------------------------------------

_EXIT = {"x86_64": 60, "aarch64": 93}
_PR_SET_SECCOMP, _SECCOMP_MODE_STRICT = 22, 1


def runs_idle_where_system_calls_kill(placement: Any, meeting: Path, extra: Callable[[], Any] | None) -> None:
    """From iteration 500 to 3500 Linux kills the process at any system call but reading, writing and leaving."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = _EXIT[platform.machine()]
    trainer = Trainer(Reporting(), None)
    for position in range(5):
        trainer.extend(print, f"e{position}", trigger=(10**6, "iteration"), priority=100 - 50 * position)

    def lock(trainer: Any) -> None:
        gc.disable()  # what others have left behind may free memory of the system at any time
        if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_STRICT, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "the kernel does not offer seccomp")

    trainer.extend(lock, trigger=ManualScheduleTrigger(500, "iteration"), priority=-300)
    trainer.extend(lambda t: libc.syscall(number, 0), "leave", trigger=(3500, "iteration"))
    if extra is not None:
        trainer.extend(lambda t: extra(), "extra", trigger=(1000, "iteration"))
    trainer.run()


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in _EXIT, reason="only Linux kills at system calls"
)
@pytest.mark.parametrize(("extra", "exit_code"), [(None, 0), (os.getppid, -signal.SIGKILL)])
def test_an_idle_iteration_makes_no_system_call(tmp_path, extra, exit_code) -> None:
    (result,) = run_on_ranks(runs_idle_where_system_calls_kill, extra, folder=tmp_path, ranks=1, opened=False)
    assert result.exit_code == exit_code, result
