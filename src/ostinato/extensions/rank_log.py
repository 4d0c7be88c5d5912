"""A text log for each rank, and one voice on the console."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.loop import Extension, TrainerView

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class RankLog(Extension):
    """While the run lasts, what is logged goes to ``worker_<rank>.log``, each line once; the console shows rank 0 only.

    It is open from before the saved state is loaded until all other extensions are finalized, so it also holds what
    loading and the last save have to say. A resumed run appends to the file. The traceback of an error that ends the
    run stands at the end of it.

    Console handlers that the program has set up itself are used on rank 0, and set aside on the other ranks until the
    run has ended.

    :param folder: where the file is; by default ``logs`` in the trainer's folder.
    :param level: the least level that is recorded, as a number or name of :mod:`logging`.
    :param console: whether rank 0 shows its lines on the error output if no console handler is there.
    :param logger: the logger that is recorded, with those below it; by default all.
    :raises ArgumentTypeError: when the level or the logger is of the wrong kind.
    :raises ArgumentValueError: when no level has this name.
    """

    trigger = None
    priority = 100_000  # opened before anything else has something to say
    finalizes_last = True
    name = "rank_log"

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        level: int | str = logging.INFO,
        console: bool = True,
        logger: str = "",
    ) -> None:
        if not isinstance(logger, str):
            raise ArgumentTypeError(
                f"RankLog: the logger is given by its name, not as {logger!r}.",
                advice="Give logger.name of it, or leave it out for all loggers.",
                value=logger,
            )
        self._folder = None if folder is None else Path(folder)
        self._level = _checked_level(level)
        self._console = console
        self._logger = logging.getLogger(logger)
        self._level_before = logging.NOTSET
        self._file: logging.FileHandler | None = None
        self._added: list[logging.Handler] = []
        self._set_aside: list[tuple[logging.Logger, logging.Handler]] = []

    def restore(self, trainer: TrainerView) -> None:
        """Open the file."""
        self._open(trainer)

    def initialize(self, trainer: TrainerView) -> None:
        """Open the file, if it is not open yet."""
        self._open(trainer)

    def __call__(self, trainer: TrainerView) -> None:
        """Nothing: it listens."""

    def on_error(self, trainer: TrainerView, error: BaseException, traceback: TracebackType | None) -> None:
        """Write the traceback to the file; the console shows it when the program ends."""
        if self._file is not None:
            record = logging.LogRecord(
                __name__, logging.ERROR, __file__, 0, "the run has failed", None, (type(error), error, traceback)
            )
            self._file.handle(record)

    def finalize(self, trainer: TrainerView) -> None:
        """Close the file, and leave the logger as it was."""
        if self._file is None:
            return
        for handler in self._added:
            self._logger.removeHandler(handler)
            handler.close()
        for logger, handler in self._set_aside:
            logger.addHandler(handler)
        self._logger.setLevel(self._level_before)
        self._added, self._set_aside, self._file = [], [], None

    def _open(self, trainer: TrainerView) -> None:
        if self._file is not None:
            return
        rank = trainer.group.rank
        path = (trainer.out / "logs" if self._folder is None else self._folder) / f"worker_{rank}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
        self._level_before = self._logger.level
        if self._logger.getEffectiveLevel() > self._level:
            self._logger.setLevel(self._level)
        heard = _heard(self._logger)
        consoles = [(logger, handler) for logger, handler in heard if _is_console(handler)]
        if rank != 0:
            self._set_aside = consoles
            for logger, handler in consoles:
                logger.removeHandler(handler)
        elif self._console and not consoles:
            self._added.append(logging.StreamHandler(sys.stderr))
        if all(getattr(handler, "baseFilename", None) != self._file.baseFilename for _, handler in heard):
            self._added.append(self._file)  # else every line would stand there twice
        for handler in self._added:
            handler.setLevel(self._level)
            handler.setFormatter(_formatter())
            self._logger.addHandler(handler)


def _formatter() -> logging.Formatter:
    formatter = logging.Formatter(_FORMAT, "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    return formatter


def _is_console(handler: logging.Handler) -> bool:
    if hasattr(handler, "console"):  # of rich
        return True
    return isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler)


def _heard(logger: logging.Logger) -> list[tuple[logging.Logger, logging.Handler]]:
    """All handlers that see a line of this logger, with the loggers that they belong to."""
    found: list[tuple[logging.Logger, logging.Handler]] = []
    above: logging.Logger | None = logger
    while above is not None:
        found += [(above, handler) for handler in above.handlers]
        above = above.parent if above.propagate else None
    return found


def _checked_level(level: Any) -> int:
    if isinstance(level, bool) or not isinstance(level, int | str):
        raise ArgumentTypeError(
            f"RankLog: the level must be a name or a number of logging, not {level!r}.", value=level
        )
    if isinstance(level, int):
        return level
    number = logging.getLevelName(level.upper())
    if not isinstance(number, int):
        raise ArgumentValueError(
            f"RankLog: {level!r} is no level of logging.",
            advice="Use DEBUG, INFO, WARNING, ERROR or CRITICAL.",
            value=level,
        )
    return number
