"""Says how much time the update and every extension take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from ostinato.errors import ArgumentTypeError
from ostinato.extensions.report_file import ReportFile, checked_filename
from ostinato.extensions.saved_format import check_format
from ostinato.loop import PRIORITY_SNAPSHOT, Extension, TrainerView
from ostinato.loop.inner_trigger import InnerTrigger

STATE_FORMAT = 1
_UPDATE_KEY = "/"  # no extension has this name, but one may be called update
_HEAD = ("", "calls", "total s", "share", "mean ms", "longest ms")


class ProfileReport(Extension):
    """Times the update and every extension, and when its trigger fires writes a table of the time since the last one ::

        iterations 1,001 to 2,000 in 63.120 s

                            calls     total s   share     mean ms  longest ms
        update               1000      58.102   92.0%      58.102      91.310
          reading            1000       4.310    6.8%       4.310
          computing          1000      53.792   85.2%      53.792
        validation              1       4.511    7.1%    4511.204    4511.204
        metrics              1000       0.031    0.0%       0.031       0.644
        the loop itself                 0.476    0.8%

    into a file in the trainer's folder, which is replaced in one step, and to ``write``. Only rank 0 does so.

    The clock is the wall's, and nothing waits for a device: work that an update has only asked an accelerator for is
    counted where somebody waits for it, often in the extension that reads the loss. What a device does is seen by
    :class:`~ostinato.extensions.TorchProfiler`. The times of one process are not carried to the next.

    :param trigger: when a table is written. It is an argument of this class and not of ``Trainer.extend``, because the
        extension itself has to be called in every iteration.
    :param filename: the file, below the trainer's folder; ``None``: no file.
    :param write: called with each table as one text.
    :param clock: seconds that never go back.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: for a trigger with a bad text, unit or number, and for an empty name.
    """

    trigger = (1, "iteration")
    priority = PRIORITY_SNAPSHOT - 1000  # last of all, so that a table holds whole iterations

    def __init__(
        self,
        trigger: Any = (1, "epoch"),
        filename: str | os.PathLike[str] | None = "profile.txt",
        *,
        write: Callable[[str], Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if write is not None and not callable(write):
            raise ArgumentTypeError(f"ProfileReport: write must be something to call, not {write!r}.", value=write)
        self._table_trigger = InnerTrigger(trigger)
        self._filename = None if filename is None else checked_filename(filename, "ProfileReport")
        self._write = write
        self._clock = clock
        self._file: ReportFile | None = None
        self._is_active = False
        self._own_name = ""
        self._times = {_UPDATE_KEY: _Times()}  # by the name of the extension
        self._reading = _Times()
        self._computing = _Times()
        self._since: tuple[int, float] = (0, 0.0)  # iteration, seconds

    def initialize(self, trainer: Any) -> None:
        """Take the base line of the trigger, and put a clock around every call of the loop."""
        self._table_trigger.initialize(trainer)
        self._is_active = trainer.group.rank == 0
        if not self._is_active:
            return
        if self._filename is not None:
            self._file = ReportFile(trainer.out / self._filename)
        self._own_name = trainer.name_of(self)
        trainer.wrap_calls(self._timed)
        self._since = (trainer.updater.state.iteration, self._clock())

    def _timed(self, name: str | None, call: Callable[..., Any]) -> Callable[..., Any]:
        if name == self._own_name:
            return call  # its own time belongs to the loop
        times = self._times.setdefault(_UPDATE_KEY if name is None else name, _Times())
        clock = self._clock

        def timed(*arguments: Any) -> Any:
            started = clock()
            try:
                return call(*arguments)
            finally:
                times.add(clock() - started)

        return timed

    def __call__(self, trainer: TrainerView) -> None:
        """Take in what the updater measures itself; write a table when it is time."""
        if not self._is_active:
            return
        reading = getattr(trainer.updater, "batch_read_time", None)
        computing = getattr(trainer.updater, "batch_time", None)
        if reading is not None and computing is not None:
            self._reading.add(reading)
            self._computing.add(computing)
        if not self._table_trigger(trainer):
            return
        table = self.table(trainer)
        for times in (*self._times.values(), self._reading, self._computing):
            times.clear()
        self._since = (trainer.updater.state.iteration, self._clock())
        if self._file is not None:
            self._file.replace(table.encode())
        if self._write is not None:
            self._write(table)

    def table(self, trainer: TrainerView) -> str:
        """The table as it would be written now."""
        first, started = self._since
        seconds = self._clock() - started
        rows = [_HEAD]
        for name, times in self._times.items():
            rows.append(times.row("update" if name == _UPDATE_KEY else name, seconds))
            if name == _UPDATE_KEY and self._reading.calls:
                rows.append(self._reading.row("  reading", seconds))
                rows.append(self._computing.row("  computing", seconds))
        rest = seconds - sum(times.total for times in self._times.values())
        rows.append(("the loop itself", "", f"{rest:.3f}", _share(rest, seconds), "", ""))
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
            )
            for row in rows
        ]
        last = trainer.updater.state.iteration
        head = f"iterations {first + 1:,} to {last:,} in {seconds:.3f} s"
        return "\n".join([head, "", *(line.rstrip() for line in lines)]) + "\n"

    def state_dict(self) -> dict[str, Any]:
        """The memory of the trigger; what was timed belongs to this process."""
        return {"format": STATE_FORMAT, "trigger": self._table_trigger.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the memory of the trigger.

        :raises ArgumentValueError: for a state of another format.
        """
        check_format(state, STATE_FORMAT, "ProfileReport")
        self._table_trigger.load_state_dict(state["trigger"])


class _Times:
    """What the calls of one kind have taken, in seconds."""

    __slots__ = ("calls", "longest", "total")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.calls, self.total, self.longest = 0, 0.0, 0.0

    def add(self, seconds: float) -> None:
        self.calls += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)

    def row(self, name: str, seconds: float) -> tuple[str, str, str, str, str, str]:
        mean = f"{1000 * self.total / self.calls:.3f}" if self.calls else ""
        longest = f"{1000 * self.longest:.3f}" if self.calls else ""
        return name, str(self.calls), f"{self.total:.3f}", _share(self.total, seconds), mean, longest


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole > 0 else ""
