"""Prints the records of a log report as a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

from ostinato.errors import ArgumentTypeError
from ostinato.extensions.log_report import LogReport, Record
from ostinato.extensions.name_lists import names_of
from ostinato.extensions.registered import registered_extension
from ostinato.extensions.saved_format import check_format
from ostinato.loop import PRIORITY_READER, Extension, TrainerView

STATE_FORMAT = 1
_LEAST_WIDTH = 10


class PrintReport(Extension):
    """Prints every new record of a :class:`~ostinato.extensions.LogReport` as a line of a table ::

        epoch       iteration   main        validation/main
        1           4           0.520833    0.61
        2           8           0.158135    0.2

    Columns are at least ten wide; a value that a record does not have leaves its column empty. The head stands before
    the first line of a process. How far it has printed is saved with the run, so no line is printed again after a
    resume, and none is left out. Only rank 0 prints.

    :param entries: the names to show, in order: those of the observation, ``epoch``, ``iteration``, ``elapsed_time``.
    :param log_report: the name under which the report is registered, or the registered object itself.
    :param out: a stream, or something to call with each line (without a line break); by default the standard output.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: when ``entries`` is empty or names something twice.
    """

    trigger = (1, "iteration")
    priority = PRIORITY_READER - 20  # after the report, in whatever order they are registered

    def __init__(
        self,
        entries: Iterable[str],
        log_report: str | LogReport = "LogReport",
        out: TextIO | Callable[[str], Any] | None = None,
    ) -> None:
        self._entries = names_of(entries, "PrintReport", "entries")
        if not isinstance(log_report, str | LogReport):
            raise ArgumentTypeError(
                f"PrintReport: log_report must be the name of a LogReport, or one, not {log_report!r}.",
                value=log_report,
            )
        if out is not None and not callable(out) and not callable(getattr(out, "write", None)):
            raise ArgumentTypeError(f"PrintReport: out must be a stream or something to call, not {out!r}.", value=out)
        self._widths = [max(_LEAST_WIDTH, len(entry)) for entry in self._entries]
        self._log_report = log_report
        self._out = out
        self._report: LogReport | None = None  # None: not initialized, or not rank 0
        self._printed = 0  # records
        self._has_head = False

    def initialize(self, trainer: TrainerView) -> None:
        """Find the report.

        :raises ArgumentValueError: when nothing of that name is registered.
        :raises ArgumentTypeError: when it is something else than a ``LogReport``.
        """
        report = registered_extension(trainer, self._log_report, LogReport, "PrintReport")
        self._report = report if trainer.group.rank == 0 else None
        self._printed = min(self._printed, len(report.records))  # the report may have lost its state

    def __call__(self, trainer: TrainerView) -> None:
        """Print the records that are new."""
        if self._report is None or len(self._report.records) <= self._printed:
            return
        if not self._has_head:
            self._has_head = True
            self._print(self._row(self._entries))
        for record in self._report.records[self._printed :]:
            self._print(self._row([_shown(record, entry) for entry in self._entries]))
            self._printed += 1

    def finalize(self, trainer: TrainerView) -> None:
        """Print what a slow trigger has left."""
        self(trainer)

    def _row(self, cells: Iterable[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)).rstrip()

    def _print(self, line: str) -> None:
        out = sys.stdout if self._out is None else self._out  # now, not at import: a test or a notebook replaces it
        if callable(out):
            out(line)
        else:
            out.write(line + "\n")
            out.flush()

    def state_dict(self) -> dict[str, Any]:
        """How many records are printed."""
        return {"format": STATE_FORMAT, "printed": self._printed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on behind what is printed.

        :raises ArgumentValueError: for a state of another format.
        """
        check_format(state, STATE_FORMAT, "PrintReport")
        self._printed = int(state["printed"])


def _shown(record: Record, entry: str) -> str:
    if entry not in record:
        return ""
    value = record[entry]
    return f"{value:.6g}" if isinstance(value, float) else str(value)
