"""Where the time of an iteration goes."""

from __future__ import annotations

from ostinato.loop import PRIORITY_WRITER, Extension, TrainerView, get_trigger, report
from ostinato.loop.triggers import Trigger


class Throughput(Extension):
    """Reports true averages since its last report: ``speed/iterations`` and ``speed/samples`` (per second), and the
    seconds of one iteration as ``time/reading``, ``time/computing`` and ``time/elsewhere`` (extensions and the loop).

    Samples and the split are reported where the updater counts samples and offers ``batch_read_time`` and
    ``batch_time``. The first iteration of a process, which warms everything up, is left out.

    :param report_trigger: when the averages are reported.
    """

    trigger = (1, "iteration")
    priority = PRIORITY_WRITER
    name = "throughput"

    def __init__(self, report_trigger: object = (100, "iteration")) -> None:
        self._report_trigger = get_trigger(report_trigger)
        self._since: tuple[int, int, float] | None = None  # iteration, samples, elapsed seconds
        self._reading = 0.0
        self._computing = 0.0

    def initialize(self, trainer: TrainerView) -> None:
        """Take the base line of the report trigger."""
        if isinstance(self._report_trigger, Trigger):
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
        self._since = (state.iteration, state.samples, trainer.elapsed_time)
        self._reading = self._computing = 0.0
