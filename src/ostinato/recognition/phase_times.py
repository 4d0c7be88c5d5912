"""Where the time of an update goes, without making the training wait for the device."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

DATA = "data"
BACKBONE_FORWARD = "backbone forward"
HEAD_FORWARD = "head forward"
HEAD_BACKWARD = "head backward"
BACKBONE_BACKWARD = "backbone backward"
EXCHANGE = "exchange"
BACKBONE_UPDATE = "backbone update"
HEAD_UPDATE = "head update"

PHASES = (
    DATA,
    BACKBONE_FORWARD,
    HEAD_FORWARD,
    HEAD_BACKWARD,
    BACKBONE_BACKWARD,
    EXCHANGE,
    BACKBONE_UPDATE,
    HEAD_UPDATE,
)
"""The parts of an update, in their order. Waiting for other ranks in the middle of a part counts to it."""


class PhaseTimes:
    """Adds up the seconds of each part of an update.

    On a processor the clock is read. A CUDA device works behind the program, so marks are put into its stream and read
    once it has come past them: seconds then are those of an update or two before, and reading data, which happens on
    the host, is timed there.

    :param device: where the work is done.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._marks: list[tuple[str, Any, float]] = []
        self._unread: list[list[tuple[str, Any, float]]] = []
        self.latest: dict[str, float] = {}
        """Seconds by phase, of the newest update whose work is known to be done; empty before."""

    def begin(self) -> None:
        """An update begins."""
        self._marks = []
        self.mark("")

    def mark(self, phase: str) -> None:
        """What was done since the mark before belongs to this phase."""
        event = None
        if self._on_cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        self._marks.append((phase, event, time.perf_counter()))

    def end(self) -> None:
        """The update is over."""
        self._unread.append(self._marks)
        while self._unread and (not self._on_cuda or self._unread[0][-1][1].query()):
            self.latest = self._seconds(self._unread.pop(0))

    def _seconds(self, marks: list[tuple[str, Any, float]]) -> dict[str, float]:
        seconds = dict.fromkeys(PHASES, 0.0)
        for (_, event_before, clock_before), (phase, event, clock) in pairwise(marks):
            if event is None or phase == DATA:
                seconds[phase] += clock - clock_before
            else:
                seconds[phase] += event_before.elapsed_time(event) / 1000
        return seconds


class CollectiveClock:
    """Adds up the seconds in which nothing happens but collectives: what calls of them and waiting for them take.

    What runs beside them, as backward does beside the exchange of its first gradients, counts for nothing. On a CUDA
    device it is the time of its stream that counts.

    :param device: where the tensors are.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._spans: list[tuple[Any, Any]] = []

    @contextmanager
    def __call__(self) -> Generator[None]:
        """Count what happens inside."""
        before = self._now()
        try:
            yield
        finally:
            self._spans.append((before, self._now()))

    def _now(self) -> Any:
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def take(self) -> float:
        """The seconds since the last time; a CUDA device must have finished its work."""
        spans, self._spans = self._spans, []
        if self._on_cuda:
            return sum(before.elapsed_time(after) for before, after in spans) / 1000
        return sum(after - before for before, after in spans)
