"""Writes the numbers of every iteration as TensorBoard scalars."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ostinato.extensions.event_file import EventFile
from ostinato.extensions.observed_values import ScalarFilter
from ostinato.loop import PRIORITY_READER, Extension, TrainerView, get_trigger, read_scalars
from ostinato.loop.triggers import Trigger

_log = logging.getLogger(__name__)

_MOST_VALUES = 16384


class TensorBoardWriter(Extension):
    """One point per iteration and name, in TensorBoard's event files.

    Values are fetched from the device in batches, as in :class:`~ostinato.extensions.MetricsWriter`; every point keeps
    the time at which it arose. When a run goes on from iteration r, TensorBoard is told to forget the points of this
    folder beyond r; event files of other folders cannot be changed, and show the history that was left.

    These points are a nicety: what cannot be written (to a full disk, say) is left out with one warning, and the next
    flush tries again.

    :param folder: where the event files go. Created when the run starts.
    :param flush_trigger: when the buffered points are written.
    """

    trigger = (1, "iteration")
    priority = PRIORITY_READER
    name = "tensorboard"

    def __init__(self, folder: str | os.PathLike[str], flush_trigger: Any = "10sec") -> None:
        self.folder = Path(folder)
        self._flush_trigger = get_trigger(flush_trigger)
        self._scalars = ScalarFilter("TensorBoard")
        self._file: EventFile | None = None
        self._is_running = False
        self._warned = False
        self._points: list[tuple[str, int, float]] = []  # name, iteration, seconds since 1970
        self._values: list[Any] = []

    def initialize(self, trainer: TrainerView) -> None:
        """Open the event file."""
        self._is_running = True
        self._write([], trainer.updater.state.iteration + 1)
        if isinstance(self._flush_trigger, Trigger):
            self._flush_trigger.initialize(trainer)

    def _write(self, points: list[tuple[str, int, float, float]], first: int) -> None:
        try:
            if self._file is None:
                self._file = EventFile.create(self.folder, purge_step=first)
            self._file.add_scalars(points)
            self._warned = False
        except OSError as error:
            if not self._warned:
                self._warned = True
                _log.warning(
                    "TensorBoard events cannot be written: %s. Training goes on without these points; metrics.jsonl "
                    "gets the same numbers.",
                    error.strerror or error,
                )

    def __call__(self, trainer: TrainerView) -> None:
        """Buffer the numbers of this iteration; write the buffer when it is time."""
        iteration, now = trainer.updater.state.iteration, time.time()
        names, values = self._scalars.split(trainer.observation)
        self._points += [(name, iteration, now) for name in names]
        self._values += values
        if self._flush_trigger(trainer) or len(self._values) >= _MOST_VALUES:
            self.flush()

    def flush(self) -> None:
        """Fetch the buffered values and write their points."""
        if not self._is_running or not self._points:
            return
        numbers = read_scalars(self._values)
        points = [(*point, number) for point, number in zip(self._points, numbers, strict=True)]
        self._points, self._values = [], []
        self._write(points, points[0][1])

    def state_dict(self) -> dict[str, Any]:
        """Nothing to remember; but who asks is about to save, and the points have to be there before the state is."""
        self.flush()
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing was remembered."""

    def finalize(self, trainer: TrainerView) -> None:
        """Write what is left and close the file."""
        self.flush()
        self._is_running = False
        file, self._file = self._file, None
        if file is not None:
            file.close()
