"""Hands the numbers of every iteration to a tracker."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from ostinato.extensions.observed_values import HeldNumbers, ScalarFilter
from ostinato.extensions.tracker import Point, RunInfo, Tracker
from ostinato.loop import PRIORITY_READER, Extension, TrainerView
from ostinato.loop.inner_trigger import InnerTrigger
from ostinato.loop.protocols import Status

_log = logging.getLogger(__name__)

_MOST_VALUES = 16384  # buffered numbers at which they are handed over even if the trigger has not fired


class TrackerWriter(Extension):
    """One point per iteration: all numbers of the observation, in the order in which they were reported.

    The tracker is opened when the run starts, on rank 0; on other ranks nothing happens. What is no number is left out,
    with one warning per name. Of a pair (value, weight) the value is written.

    Values are copied on their device and fetched together, so an ordinary iteration does not wait for the device. They
    are handed to the tracker when ``flush_trigger`` fires, at the end, and whenever the state of the run is saved: a
    state saved at iteration n means that the tracker has been given all points up to n.

    A log is a nicety: what the tracker cannot write costs one warning and these points, and training goes on. Only what
    fails while the tracker is opened, before the first update, ends the run.

    :param tracker: where the points go; see :class:`~ostinato.extensions.tracker.Tracker`.
    :param flush_trigger: when buffered points are handed over besides.
    """

    trigger = (1, "iteration")
    priority = PRIORITY_READER

    def __init__(self, tracker: Tracker, flush_trigger: Any = "10sec") -> None:
        self.tracker = tracker
        self._flush_trigger = InnerTrigger(flush_trigger)
        self._scalars = ScalarFilter(tracker.label)
        self._is_open = False
        self._warned = False
        self._heads: list[tuple[int, int, float, float]] = []  # iteration, epoch, elapsed and wall time
        self._names: list[list[str]] = []
        self._held: list[HeldNumbers] = []
        self._count = 0  # buffered numbers

    @property
    def default_name(self) -> str:
        """The label of the tracker."""
        return self.tracker.label

    def initialize(self, trainer: TrainerView) -> None:
        """Open the tracker, on rank 0."""
        self._flush_trigger.initialize(trainer)
        if trainer.group.rank != 0:
            return
        run = RunInfo(trainer.out.resolve().name, trainer.out)
        self.tracker.open(run, trainer.updater.state.iteration)
        self._is_open = True
        self._hand_over([])

    def __call__(self, trainer: TrainerView) -> None:
        """Buffer the numbers of this iteration; hand the buffer over when it is time."""
        if not self._is_open:
            return
        state = trainer.updater.state
        self._heads.append((state.iteration, state.epoch, trainer.elapsed_time, time.time()))
        names, values = self._scalars.split(trainer.observation)
        self._names.append(names)
        self._held.append(HeldNumbers(values))
        self._count += len(values)
        if self._flush_trigger(trainer) or self._count >= _MOST_VALUES:
            self.flush()

    def flush(self) -> None:
        """Fetch the buffered values and hand them to the tracker."""
        if not self._is_open or not self._heads:
            return
        rows = HeldNumbers.read(self._held)
        points = [
            Point(*head, values=dict(zip(names, row, strict=True)))
            for head, names, row in zip(self._heads, self._names, rows, strict=True)
        ]
        self._heads, self._names, self._held, self._count = [], [], [], 0
        self._hand_over(points)

    def _hand_over(self, points: list[Point]) -> None:
        try:
            self.tracker.write(points)
            self._warned = False
        except Exception as error:  # a service may raise anything, and no log is worth a training
            if not self._warned:
                self._warned = True
                reason = error.strerror if isinstance(error, OSError) and error.strerror else error
                _log.warning("%s: points cannot be written: %s. Training goes on without them.", self._label, reason)

    @property
    def _label(self) -> str:
        return self.tracker.label

    def state_dict(self) -> dict[str, Any]:
        """What the tracker remembers. Who asks is about to save, and the points have to be there before."""
        self.flush()
        save = getattr(self.tracker, "state_dict", None)
        return save() if callable(save) else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the tracker back what it remembered."""
        load = getattr(self.tracker, "load_state_dict", None)
        if callable(load):
            load(state)

    def finalize(self, trainer: TrainerView) -> None:
        """Hand over what is left and close the tracker."""
        if not self._is_open:
            return
        try:
            self.flush()
        finally:
            self._is_open = False
            self._close(trainer.status)

    def _close(self, status: Status) -> None:
        try:
            self.tracker.close(status)
        except Exception as error:  # the run itself has ended well
            _log.warning("%s cannot be closed: %s", self._label, error)
