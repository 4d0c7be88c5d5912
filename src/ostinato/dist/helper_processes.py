"""Processes beside the ranks of a job: started with them, again when they fail, and ended with them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

_LOOK_EVERY = 0.2
_SECONDS_TO_END = 10.0


@dataclass(frozen=True)
class Helper:
    """A process beside the ranks, on the first machine. Started again when it fails, as long as the ranks run."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def helping(helpers: Sequence[Helper]) -> Generator[None]:
    """Keep helper processes running inside; give them a moment to end by themselves, then end them."""
    if not helpers:
        yield
        return
    over = threading.Event()
    running: list[subprocess.Popen[bytes]] = []

    def keep_running() -> None:
        while not over.wait(_LOOK_EVERY):
            for number, helper in enumerate(helpers):
                if running[number].poll() not in (None, 0) and not over.is_set():
                    running[number] = _start(helper)

    keeper = threading.Thread(target=keep_running, name="ostinato-helpers", daemon=True)
    ended_well = False
    try:
        for helper in helpers:
            running.append(_start(helper))
        keeper.start()
        yield
        ended_well = True
    finally:
        over.set()
        if keeper.is_alive():
            keeper.join()
        _end(running, patience=_SECONDS_TO_END if ended_well else 0.0)


def _end(processes: Sequence[subprocess.Popen[bytes]], patience: float) -> None:
    """Wait for processes to end by themselves, then ask them to, then make them."""
    for wait, and_then in ((patience, subprocess.Popen.terminate), (_SECONDS_TO_END, subprocess.Popen.kill)):
        end = time.monotonic() + wait
        for process in processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                and_then(process)
    for process in processes:
        process.wait()


def _start(helper: Helper) -> subprocess.Popen[bytes]:
    return subprocess.Popen(helper.command, env={**os.environ, **helper.environment})
