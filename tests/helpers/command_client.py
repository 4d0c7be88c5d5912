"""Starting the command line from tests, cheaply, and reading what it has left in the run folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ostinato.runs import RunFolder

SERVER = Path(__file__).with_name("command_server.py")


@dataclass
class Started:
    """A process that runs one command."""

    server: CommandServer
    pid: int
    output: Path

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal. The process exists at least as a zombie until :meth:`wait`, so it hits nobody else."""
        os.kill(self.pid, number)

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return self.output.read_text() if self.output.exists() else ""

    def wait(self) -> int:
        """The exit status; negative numbers are signals. What does not end within five minutes is killed."""
        watchdog = threading.Timer(300, self.kill)
        watchdog.start()
        try:
            return os.waitstatus_to_exitcode(self.server.ask({"do": "wait", "pid": self.pid})["status"])
        finally:
            watchdog.cancel()

    def wait_for(self, text: str, seconds: float = 300) -> str:
        """Wait until it has printed something."""
        end = time.monotonic() + seconds
        while text not in self.text:
            if time.monotonic() > end:
                raise AssertionError(f"{text!r} was not printed within {seconds} s, but: {self.text}")
            time.sleep(0.01)
        return self.text


class CommandServer:
    """One process that has imported everything and forks for each command. Usable as a context manager.

    :param folder: where the output of the commands goes.
    :param environment: of the commands, besides what this process has.
    :param real_models: train the real models and not the tiny one.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], *, real_models: bool = False) -> None:
        self.folder = folder
        self._arguments = ["real"] if real_models else []
        self._environment = dict(environment)
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._number = 0

    def __enter__(self) -> CommandServer:
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER), *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **self._environment},
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.communicate()  # the end of its input ends it
        self._process = None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One request and its answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def start(
        self,
        *words: str | Path,
        faults: Mapping[str, Mapping[str, Any]] | None = None,
        environment: Mapping[str, str] | None = None,
        terminal: str | None = None,
        ignored_signals: Sequence[int] = (),
    ) -> Started:
        """Start `ostinato` with these words."""
        self._number += 1
        output = self.folder / f"output_{self._number}.txt"
        answer = self.ask(
            {
                "do": "start",
                "words": [str(word) for word in words],
                "faults": {name: dict(arguments) for name, arguments in (faults or {}).items()},
                "environment": dict(environment or {}),
                "terminal": terminal,
                "output": str(output),
                "ignored_signals": list(ignored_signals),
            }
        )
        return Started(self, answer["pid"], output)

    def run(self, *words: str | Path, **settings: Any) -> tuple[int, str]:
        """Start a command, wait for its end; exit status and everything printed."""
        started = self.start(*words, **settings)
        status = started.wait()
        return status, started.text


@dataclass(frozen=True)
class Kept:
    """What a run has left: everything that must be equal when two runs are called equal."""

    iteration: int
    model: Mapping[str, torch.Tensor]
    optimizer: Any
    losses: Mapping[int, Mapping[str, float]]
    """Iteration to the numbers of its line."""

    @classmethod
    def read(cls, run: Path) -> Kept:
        """Of the newest generation and the logs; every iteration must have exactly one line."""
        folder = RunFolder(run)
        assert all(not damage for damage in folder.verify().values())
        loaded = folder.load_newest()
        assert loaded is not None
        lines = [
            json.loads(line)
            for path in sorted(run.glob("logs/session_*/metrics.jsonl"))
            for line in path.read_text().splitlines()
        ]
        iterations = [line["iteration"] for line in lines]
        assert sorted(iterations) == list(range(1, loaded.iteration + 1)), "each iteration has exactly one line"
        losses = {
            line["iteration"]: {key: value for key, value in line.items() if key != "elapsed_time"} for line in lines
        }
        return cls(loaded.iteration, loaded.model, loaded.optimizer, losses)


def assert_equal_runs(one: Kept, other: Kept) -> None:
    """The two runs are equal, bit for bit."""
    assert one.iteration == other.iteration
    for iteration, values in one.losses.items():
        assert values == other.losses[iteration], f"iteration {iteration}"
    assert list(one.model) == list(other.model)
    for name, tensor in one.model.items():
        assert tensor.equal(other.model[name]), name
    _assert_equal_trees(one.optimizer, other.optimizer, "optimizer")


def _assert_equal_trees(one: Any, other: Any, place: str) -> None:
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, place
        assert one.equal(other), place
    elif isinstance(one, Mapping):
        assert list(one) == list(other), place
        for key, value in one.items():
            _assert_equal_trees(value, other[key], f"{place}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), place
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            _assert_equal_trees(left, right, f"{place}[{index}]")
    else:
        assert one == other, place
