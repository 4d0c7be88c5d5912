"""Keeps a record of the means of the observation, in memory and as a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.extensions.interval_means import IntervalMeans
from ostinato.extensions.metrics_writer import strict_number
from ostinato.extensions.name_lists import names_of
from ostinato.extensions.report_file import ReportFile, checked_filename
from ostinato.extensions.saved_format import check_format
from ostinato.loop import PRIORITY_READER, Extension, TrainerView
from ostinato.loop.inner_trigger import InnerTrigger

STATE_FORMAT = 1
LogFormat = Literal["json", "json-lines", "yaml"]
_BY_SUFFIX: dict[str, LogFormat] = {".jsonl": "json-lines", ".yaml": "yaml", ".yml": "yaml"}

Record = dict[str, Any]
"""``epoch``, ``iteration``, ``elapsed_time`` (seconds), then the means by name."""


class LogReport(Extension):
    """Takes in the observation of every iteration, and when its trigger fires appends a record: ``epoch``,
    ``iteration``, ``elapsed_time`` (seconds of training), then the mean of every number since the last record.

    The records are in :attr:`records`, where :class:`~ostinato.extensions.PrintReport` finds them, and in a file in the
    trainer's folder. They are saved with the run, and the file follows them: after a resume it holds the records of the
    kept history, each once, and none of a stretch that was lost.

    The file is replaced as a whole and flushed to the disk for every record, or gets one line more with ``append``. A
    trigger that fires very often goes with ``append=True``. What the disk refuses costs one warning, and is in the file
    after the next record that it takes. Only rank 0 records and writes. Numbers stay on their device until a record is
    made.

    :param keys: only these names are recorded; by default all.
    :param trigger: when a record is made. It is an argument of this class and not of ``Trainer.extend``, because the
        extension itself has to be called in every iteration to see its numbers.
    :param filename: the file, below the trainer's folder; ``None``: no file.
    :param append: write each record behind the others instead of the whole file anew; for ``json-lines`` and ``yaml``.
    :param format: ``json`` (one list), ``json-lines`` (one object a line) or ``yaml`` (one list); by default told from
        the end of the name: ``.jsonl``, ``.yaml`` and ``.yml`` mean what they say, all others ``json``. In JSON, not a
        number and the infinities are the texts ``"nan"``, ``"inf"`` and ``"-inf"``.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: for an empty name, an unknown format, or ``append`` with a format that cannot grow.
    """

    trigger = (1, "iteration")
    priority = PRIORITY_READER

    def __init__(
        self,
        keys: Iterable[str] | None = None,
        trigger: Any = (1, "epoch"),
        filename: str | os.PathLike[str] | None = "log",
        append: bool = False,
        format: LogFormat | None = None,
    ) -> None:
        self._keys = None if keys is None else names_of(keys, "LogReport", "keys")
        self._record_trigger = InnerTrigger(trigger)
        self._filename = None if filename is None else checked_filename(filename, "LogReport")
        self._format = _checked_format(format, self._filename)
        if not isinstance(append, bool):
            raise ArgumentTypeError(f"LogReport: append must be True or False, not {append!r}.", value=append)
        if append and self._format == "json":
            raise ArgumentValueError(
                "LogReport: append is set, and a file of format 'json' is one list, which cannot grow at its end.",
                advice="Use format='json-lines' or 'yaml', or a filename that ends in .jsonl.",
                value=append,
            )
        self._append = append
        self._means = IntervalMeans("LogReport", self._keys)
        self._records: list[Record] = []
        self._file: ReportFile | None = None
        self._in_file: int | None = None  # records that the file holds; None: it has to be written as a whole
        self._is_active = False

    @property
    def records(self) -> Sequence[Record]:
        """All records so far, of all processes of the run; to be read only."""
        return self._records

    def initialize(self, trainer: TrainerView) -> None:
        """Take the base line of the trigger; after a resume, bring the file in line with the records."""
        self._record_trigger.initialize(trainer)
        self._is_active = trainer.group.rank == 0
        if self._filename is None or not self._is_active:
            return
        self._file = ReportFile(trainer.out / self._filename)
        # Without a record the file stays: it may be another run's, and this one may fail before it has anything to say.
        if self._records or (trainer.updater.state.iteration > 0 and self._file.path.exists()):
            self._write()

    def __call__(self, trainer: TrainerView) -> None:
        """Take in the numbers of this iteration; make a record when it is time."""
        if not self._is_active:
            return
        self._means.add(trainer.observation)
        if not self._record_trigger(trainer):
            return
        state = trainer.updater.state
        place = {
            "epoch": state.epoch,
            "iteration": state.iteration,
            "elapsed_time": round(trainer.elapsed_time, 3),
        }
        self._records.append({**place, **self._means.compute(), **place})  # no reported name hides the place
        self._means.clear()
        if self._file is not None:
            self._write()

    def _write(self) -> None:
        assert self._file is not None
        if self._append and self._in_file is not None:
            done = self._file.append(self._shown(self._records[self._in_file :]).decode().rstrip("\n"))
        else:
            done = self._file.replace(self._shown(self._records))
        self._in_file = len(self._records) if done else None

    def _shown(self, records: list[Record]) -> bytes:
        if self._format == "yaml":
            return yaml.safe_dump(records, sort_keys=False, allow_unicode=True).encode() if records else b""
        strict = [{name: strict_number(value) for name, value in record.items()} for record in records]
        if self._format == "json-lines":
            return "".join(json.dumps(record, allow_nan=False) + "\n" for record in strict).encode()
        return (json.dumps(strict, allow_nan=False, indent=2) + "\n").encode()

    def state_dict(self) -> dict[str, Any]:
        """All records, and what was gathered since the last one."""
        return {
            "format": STATE_FORMAT,
            "trigger": self._record_trigger.state_dict(),
            "means": self._means.state_dict(),
            "records": [dict(record) for record in self._records],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with saved records.

        :raises ArgumentValueError: for a state of another format.
        """
        check_format(state, STATE_FORMAT, "LogReport")
        self._record_trigger.load_state_dict(state["trigger"])
        self._means.load_state_dict(state["means"])
        self._records = [dict(record) for record in state["records"]]
        self._in_file = None


def _checked_format(format: Any, filename: str | None) -> LogFormat:
    if format is None:
        return _BY_SUFFIX.get(Path(filename or "").suffix.lower(), "json")
    if format not in get_args(LogFormat):
        raise ArgumentValueError(
            f"LogReport: format is {format!r}.", advice=f"Use one of {', '.join(get_args(LogFormat))}.", value=format
        )
    return format
