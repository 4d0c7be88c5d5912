"""Writes the numbers of every iteration as TensorBoard scalars."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ostinato.extensions.event_file import EventFile
from ostinato.extensions.tracker import Point, RunInfo
from ostinato.extensions.tracker_writer import TrackerWriter
from ostinato.loop.protocols import Status


class EventFileTracker:
    """The tracker behind :class:`TensorBoardWriter`: one event file per process.

    :param folder: where the event files go.
    """

    label = "tensorboard"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: EventFile | None = None
        self._first = 0  # readers forget the points of older files from this step on

    def open(self, run: RunInfo, iteration: int) -> None:
        """Note where the run goes on; the file is made by the first :meth:`write` that the disk admits."""
        self._first = iteration + 1

    def write(self, points: Sequence[Point]) -> None:
        """Append points, all or none.

        :raises OSError: the disk refuses.
        """
        if self._file is None:
            self._file = EventFile.create(self.folder, purge_step=points[0].iteration if points else self._first)
        self._file.add_scalars(
            (name, point.iteration, point.wall_time, value) for point in points for name, value in point.values.items()
        )

    def close(self, status: Status) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class TensorBoardWriter(TrackerWriter):
    """One point per iteration and name, in TensorBoard's event files.

    Values are fetched from the device in batches, as in :class:`~ostinato.extensions.MetricsWriter`; every point keeps
    the time at which it arose. When a run goes on from iteration r, TensorBoard is told to forget the points of this
    folder beyond r; event files of other folders cannot be changed, and show the history that was left.

    These points are a nicety: what cannot be written (to a full disk, say) is left out with one warning, and the next
    flush tries again.

    :param folder: where the event files go. Created when the run starts.
    :param flush_trigger: when the buffered points are written.
    """

    name = "tensorboard"

    def __init__(self, folder: str | os.PathLike[str], flush_trigger: Any = "10sec") -> None:
        self.folder = Path(folder)
        super().__init__(EventFileTracker(self.folder), flush_trigger)
