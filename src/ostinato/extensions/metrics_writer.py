"""Writes the numbers of every iteration to ``metrics.jsonl``, one JSON object a line."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ostinato.extensions.tracker import Point, RunInfo
from ostinato.extensions.tracker_writer import TrackerWriter
from ostinato.loop.protocols import Status
from ostinato.runs.atomic import Files

_log = logging.getLogger(__name__)

FILE_NAME = "metrics.jsonl"
STATE_FORMAT = 1


class MetricsFile:
    """The tracker behind :class:`MetricsWriter`, which says how the file looks.

    :param folder: the session's folder.
    """

    label = FILE_NAME

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor: int | None = None
        self._unwritten: deque[bytes] = deque()  # lines that the operating system has not taken as a whole yet
        self._taken = 0  # bytes of the first of them that it has taken
        self._warned = False

    @property
    def path(self) -> Path:
        """The file of this session."""
        return self.folder / FILE_NAME

    def open(self, run: RunInfo, iteration: int) -> None:
        """Remove the lines of a history that was left, and open the file to append to it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in sorted({*self.folder.parent.glob(f"session_*/{FILE_NAME}"), self.path}):
            removed = purge_lines_after(path, iteration)
            if removed:
                lines = "1 line" if removed == 1 else f"{removed:,} lines"
                _log.info("%s: removed %s after iteration %d; training goes on from there", path, lines, iteration)
        self._descriptor = os.open(
            self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644
        )
        if self._unwritten:
            present = _iterations_in(self.folder.parent)
            self._unwritten = deque(line for line in self._unwritten if json.loads(line)["iteration"] not in present)

    def write(self, points: Sequence[Point]) -> None:
        """Append a line for every point. What the disk refuses is kept, with one warning, for the next call."""
        for point in points:
            head = {
                "iteration": point.iteration,
                "epoch": point.epoch,
                "elapsed_time": round(point.elapsed_time, 3),
            }
            values = {name: strict_number(value) for name, value in point.values.items()}
            self._unwritten.append((json.dumps({**head, **values}, allow_nan=False) + "\n").encode())
        # Without a buffer of Python's between: after a failed write nobody could tell what such a buffer still holds.
        assert self._descriptor is not None
        try:
            while self._unwritten:
                data = b"".join(self._unwritten)
                self._note_taken(os.write(self._descriptor, memoryview(data)[self._taken :]))
            self._warned = False
        except OSError as error:
            if not self._warned:
                self._warned = True
                _log.warning(
                    "%s cannot be written: %s. Training goes on; the lines are kept and written later.",
                    self.path,
                    error.strerror or error,
                )

    def _note_taken(self, count: int) -> None:
        self._taken += count
        while self._unwritten and self._taken >= len(self._unwritten[0]):
            self._taken -= len(self._unwritten.popleft())

    def state_dict(self) -> dict[str, Any]:
        """The lines that could not be written: who asks is about to save, and they must not be lost."""
        return {"format": STATE_FORMAT, "unwritten": [line.decode() for line in self._unwritten]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over lines that could not be written before; all others are their own memory."""
        self._unwritten = deque(str(line).encode() for line in state.get("unwritten", ()))

    def close(self, status: Status) -> None:
        """Flush the file to the disk and close it."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        try:
            with contextlib.suppress(OSError):  # what the disk refuses is no reason to lose the last save
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


class MetricsWriter(TrackerWriter):
    """One line per iteration in ``<folder>/metrics.jsonl``: ``iteration``, ``epoch``, ``elapsed_time`` (seconds), then
    the observation in the order in which it was reported.

    Numbers are written with the fewest digits that read back as the same double, so equal losses are equal text. Not a
    number and the infinities are the texts ``"nan"``, ``"inf"`` and ``"-inf"``, because strict JSON has no numbers for
    them. What is no number is left out, with one warning per name; of a pair (value, weight) the value is written.

    Values stay on their device in a buffer and are fetched together, so an ordinary iteration does not wait for it. The
    buffer is written when ``flush_trigger`` fires, at the end, and whenever the state of the run is saved: a state
    saved at iteration n means that all lines up to n have been handed to the operating system. (They survive the death
    of the process; a power cut may take the last ones.)

    What cannot be written (a full disk) is kept, with one warning, and the next flush tries again; a state that is
    saved meanwhile takes those lines along.

    When a run goes on from iteration r, the lines beyond r of this and of all earlier sessions tell of a history that
    was left; they are removed, file by file and atomically, so every iteration of the kept history has one line.

    :param folder: the session's folder, such as ``my_run/logs/session_0003``; its siblings named ``session_*`` are the
        other sessions. Created when the run starts.
    :param flush_trigger: when the buffer is written besides.
    """

    name = "metrics"

    def __init__(self, folder: str | os.PathLike[str], flush_trigger: Any = "10sec") -> None:
        self.folder = Path(folder)
        self._file = MetricsFile(self.folder)
        super().__init__(self._file, flush_trigger)

    @property
    def path(self) -> Path:
        """The file of this session."""
        return self._file.path


def _iterations_in(folder: Path) -> set[int]:
    """The iterations that the sessions of a run have lines for."""
    found: set[int] = set()
    for path in folder.glob(f"session_*/{FILE_NAME}"):
        with path.open("rb") as lines:
            found.update(json.loads(line)["iteration"] for line in lines)
    return found


def strict_number(value: float) -> float | int | str:
    """A number as strict JSON can hold it: the texts ``nan``, ``inf`` and ``-inf`` where JSON has no number."""
    return value if math.isfinite(value) else str(value)


def purge_lines_after(path: Path, iteration: int) -> int:
    """Remove the lines of a metrics file that lie beyond an iteration, and lines that are no JSON object with one (the
    last line of a process that was killed while it wrote).

    The file is replaced atomically and durably, and left alone when there is nothing to remove or no such file.

    :return: how many lines were removed.
    """
    if not path.exists():
        return 0
    with path.open("rb") as source:
        removed = sum(not _belongs(line, iteration) for line in source)
    if not removed:
        return 0
    Files().replace(path, lambda: _kept_lines(path, iteration))
    return removed


def _kept_lines(path: Path, iteration: int) -> Iterator[bytes]:
    with path.open("rb") as source:
        kept = (line for line in source if _belongs(line, iteration))
        while lines := b"".join(itertools.islice(kept, 4096)):
            yield lines


def _belongs(line: bytes, iteration: int) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        found = json.loads(line)["iteration"]
    except (ValueError, KeyError, TypeError, RecursionError):  # the last for absurdly nested brackets
        return False
    return isinstance(found, int) and found <= iteration
