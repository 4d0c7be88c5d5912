"""Where the numbers of a run can be written to, as one small protocol.

A *tracker* knows one format or service. It is opened once when the run starts, is handed points in batches, and is
closed once. All that files and services have in common lives in
:class:`~ostinato.extensions.tracker_writer.TrackerWriter`: when numbers are fetched from the device, on which rank they
are written, and what happens when writing fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ostinato.loop.protocols import Status


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a tracker may want to know of the run that it serves."""

    name: str
    """The name of the run's folder."""
    folder: Path
    """The run's folder: ``trainer.out``."""


@dataclass(frozen=True, slots=True)
class Point:
    """The numbers of one iteration."""

    iteration: int
    epoch: int
    elapsed_time: float
    """Seconds of training, all processes of the run together."""
    wall_time: float
    """Seconds since 1970."""
    values: Mapping[str, float]
    """In the order in which they were reported; may hold not-a-number and infinities."""


class Tracker(Protocol):
    """What a :class:`~ostinato.extensions.tracker_writer.TrackerWriter` writes to.

    A tracker that has to remember something over processes (the number under which a service knows the run) may also
    have ``state_dict()`` and ``load_state_dict(state)``.
    """

    label: str
    """What messages call it, and the name of its extension."""

    def open(self, run: RunInfo, iteration: int) -> None:
        """Start, or go on after ``iteration`` completed updates. Called before any point is handed over.

        Points beyond ``iteration`` that are there already tell of a history that was left. They are removed if the
        format can do that; where it cannot, the docstring of the tracker says what a reader sees (WR-3).

        :raises Exception: whatever it raises ends the run before its first update.
        """
        ...

    def write(self, points: Sequence[Point]) -> None:
        """Write points, iterations rising; called without any right after :meth:`open`.

        :raises Exception: they could not be written. Training goes on without these points.
        """
        ...

    def close(self, status: Status) -> None:
        """Write what is left and let go of everything. Called exactly once if :meth:`open` returned.

        :param status: how the run ended: ``finished``, ``stopped`` or ``failed``.
        """
        ...
