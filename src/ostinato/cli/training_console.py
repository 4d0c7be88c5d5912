"""What the commands that train share: how they log, how they end, and what they say then."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable, Generator
from pathlib import Path

from ostinato.errors import OstinatoError, UsageError
from ostinato.extensions import Snapshot
from ostinato.loop import Extension, TrainerView
from ostinato.runs.writer import SaveResult

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


class StopNotice(Extension):
    """Says that a stop was asked for and that the state is being saved.

    A large state takes seconds to save. Who sees nothing happen presses Ctrl-C again, and loses what is not saved.

    :param tell: given the sentence.
    """

    name = "stop_notice"

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._start_iteration = 0
        self._has_told = False

    def initialize(self, trainer: TrainerView) -> None:
        """Note where the session begins."""
        self._start_iteration = trainer.updater.state.iteration

    def __call__(self, trainer: TrainerView) -> None:
        """Say it, once."""
        iteration = trainer.updater.state.iteration
        if trainer.stop_reason in ("key", "signal") and not self._has_told and iteration > self._start_iteration:
            self._has_told = True
            self._tell(f"stopping: iteration {iteration:,} is being saved")

    def finalize(self, trainer: TrainerView) -> None:
        """Say it, if the wish came after this extension's turn; saving comes later, its priority is lower."""
        if trainer.status == "stopped":
            self(trainer)


def saved_state(snapshot: Snapshot) -> str:
    """What is saved of the run that ends now, for the end of a sentence."""
    last = snapshot.last_saved
    if last is None:
        return "nothing has been saved yet"
    return f"iteration {last:,} is saved, and the same command continues from there"


def save_notice(result: SaveResult) -> str | None:
    """The line that tells of a state that is saved now: its iteration, average loss, and why it is kept beyond being
    the newest; None where nothing was committed."""
    if result.commit is None:
        return None
    manifest = result.commit.manifest
    why = [reason for reason in manifest.reasons if reason != "latest"]
    average = "" if manifest.average_loss is None else f", average loss {manifest.average_loss:.5f}"
    return f"saved iteration {manifest.iteration:,}{average}" + (f" ({', '.join(why)})" if why else "")


def stop_signals() -> list[signal.Signals]:
    """Signals that ask for an orderly end: Ctrl-C, `kill`, a closed terminal, and the warning of batch systems."""
    asked = [signal.SIGINT, signal.SIGTERM]
    for name in ("SIGHUP", "SIGUSR1"):
        number = getattr(signal, name, None)
        # `nohup` has the first one ignored, and who does that wants the training to go on.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            asked.append(number)
    return asked


def logged_error(error: Exception) -> str:
    """The line for the log of what ends a training; unattended runs leave nothing else to read."""
    kind = "" if isinstance(error, OstinatoError) else f"{type(error).__name__}: "
    return f"Error: {kind}{error}"


@contextlib.contextmanager
def training_logging(level: str, path: Path | None) -> Generator[Callable[[str], None]]:
    """Set how much the rooms log on the console, and copy what is shown to a file.

    :param level: a key of :data:`LEVELS`.
    :param path: the file, or None.
    :returns: writes a line to the file, where there is one, and to whatever else records the rooms' lines, such as the
        text log of a rank; not to the console.
    :raises UsageError: there is no such level, or the file cannot be written.
    """
    if level.lower() not in LEVELS:
        raise UsageError(f"-L/--loglevel is {level!r}.", advice=f"Choose one of: {', '.join(LEVELS)}.", value=level)
    handler: logging.Handler = logging.NullHandler()
    if path is not None:
        try:
            handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(
                f"-F/--logfile {path} cannot be written: {error.strerror or error}.", advice="Give another file."
            ) from error
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("ostinato")
    before = logger.level
    chosen = logging.DEBUG if before == logging.DEBUG else LEVELS[level.lower()]  # --debug shows everything
    consoles = [(found, found.level) for found in logger.handlers]
    # Others may want to hear more than the console shows.
    logger.setLevel(min(chosen, logging.INFO))
    for console, _ in consoles:
        console.setLevel(chosen)
        console.addFilter(_is_no_line)
    # The trainer logs the error that ends it, and so does the command line, in words for people.
    trainer_loggers = [logging.getLogger(f"ostinato.loop.{name}") for name in ("trainer", "trainer_state")]
    for trainer_logger in trainer_loggers:
        trainer_logger.disabled = before != logging.DEBUG
    logger.addHandler(handler)
    lines = logging.getLogger(_LINES)
    try:
        yield lambda line: lines.info("%s", line)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        for console, console_level in consoles:
            console.setLevel(console_level)
            console.removeFilter(_is_no_line)
        for trainer_logger in trainer_loggers:
            trainer_logger.disabled = False
        handler.close()


_LINES = "ostinato.shown"


def _is_no_line(record: logging.LogRecord) -> bool:
    """Whether the console has not printed this anyway."""
    return record.name != _LINES
