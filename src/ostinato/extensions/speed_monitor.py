"""Where the time of an iteration goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ostinato.extensions.saved_format import check_format
from ostinato.loop import PRIORITY_WRITER, Extension, TrainerView, report
from ostinato.loop.inner_trigger import InnerTrigger

STATE_FORMAT = 1


class SpeedMonitor(Extension):
    """Reports true averages since its last report: ``speed/iterations`` and ``speed/samples`` (per second), and the
    seconds of one iteration as ``time/reading``, ``time/computing`` and ``time/elsewhere`` (extensions and the loop).

    ``time/waiting`` is the part of all that time, from 0 to 1, in which training waited for its data: what faster
    loading could save at most.

    Samples and the split are reported where the updater counts samples and offers ``batch_read_time`` and
    ``batch_time``. The first iteration of a process, which warms everything up, is left out.

    :param report_trigger: when the averages are reported.
    :raises ArgumentTypeError: when that is no trigger.
    :raises ArgumentValueError: when it has a bad text, unit or number.
    """

    trigger = (1, "iteration")
    priority = PRIORITY_WRITER
    name = "speed_monitor"

    def __init__(self, report_trigger: object = (100, "iteration")) -> None:
        self._report_trigger = InnerTrigger(report_trigger)
        self._since: tuple[int, int, float] | None = None  # iteration, samples, elapsed seconds
        self._reading = 0.0
        self._computing = 0.0

    def initialize(self, trainer: TrainerView) -> None:
        """Take the base line of the report trigger."""
        self._report_trigger.initialize(trainer)

    def __call__(self, trainer: TrainerView) -> None:
        """Add up this iteration; report when it is time."""
        due = self._report_trigger(trainer)
        state = trainer.updater.state
        if self._since is None:
            self._since = (state.iteration, state.samples, trainer.elapsed_time)
            return
        reading = getattr(trainer.updater, "batch_read_time", None)
        computing = getattr(trainer.updater, "batch_time", None)
        if reading is not None and computing is not None:
            self._reading += reading
            self._computing += computing
        if not due:
            return
        iterations = state.iteration - self._since[0]
        samples = state.samples - self._since[1]
        seconds = trainer.elapsed_time - self._since[2]
        if iterations > 0 and seconds > 0:
            report("speed/iterations", iterations / seconds)
            if samples > 0:
                report("speed/samples", samples / seconds)
            if self._reading or self._computing:
                report("time/reading", self._reading / iterations)
                report("time/computing", self._computing / iterations)
                report("time/elsewhere", max(0.0, seconds - self._reading - self._computing) / iterations)
                report("time/waiting", min(1.0, self._reading / seconds))
        self._since = (state.iteration, state.samples, trainer.elapsed_time)
        self._reading = self._computing = 0.0

    def state_dict(self) -> dict[str, Any]:
        """The memory of the trigger; what was timed belongs to this process."""
        return {"format": STATE_FORMAT, "trigger": self._report_trigger.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the memory of the trigger.

        :raises ArgumentValueError: for a state of another format.
        """
        check_format(state, STATE_FORMAT, "SpeedMonitor")
        self._report_trigger.load_state_dict(state["trigger"])
