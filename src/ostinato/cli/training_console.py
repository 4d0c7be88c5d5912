"""What the commands that train share: how they log, how they end, and what they say then."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import IO, cast

from rich.console import Console

from ostinato.cli.keys import ConsoleKeys
from ostinato.cli.steady_output import SteadyStream
from ostinato.errors import OstinatoError, UsageError
from ostinato.extensions import Snapshot, StopSignals
from ostinato.loop import Extension, Trainer, TrainerView
from ostinato.runs.writer import SaveResult

Tell = Callable[[str], None]

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


def telling_of_saves(tell: Tell) -> Callable[[SaveResult], None]:
    """Tells of each state that is saved: its iteration, average loss, and why it is kept beyond being the newest."""

    def on_save(result: SaveResult) -> None:
        if result.commit is None:
            return
        manifest = result.commit.manifest
        why = [reason for reason in manifest.reasons if reason != "latest"]
        average = "" if manifest.average_loss is None else f", average loss {manifest.average_loss:.5f}"
        tell(f"saved iteration {manifest.iteration:,}{average}" + (f" ({', '.join(why)})" if why else ""))

    return on_save


def train_to_the_end(
    trainer: Trainer,
    snapshot: Snapshot,
    console: Console,
    tell: Tell,
    *,
    keys: Mapping[str, Callable[[], None]] | None,
    keys_help: str,
    grace: float | None,
    on_leaving: Callable[[], None] | None = None,
) -> int:
    """Run the trainer until it ends, by itself, by a key or by a signal, and say how it has ended.

    :param keys: what keys do beside Enter, which saves and quits; None listens to none.
    :param keys_help: what is said of the keys on a terminal.
    :param grace: seconds that an end by a signal may take; None for any.
    :param on_leaving: called when the run is left at once.
    :returns: the exit status: 0, or 128 and the number of the signal that ended it.
    """
    trainer.extend(StopNotice(tell), ranks=0)
    signals = StopSignals(
        trainer.request_stop,
        stop_signals(),
        grace=grace,
        saved=lambda: f"{saved_state(snapshot).capitalize()}.",
        tell=tell,
    )
    listening = (
        contextlib.nullcontext() if keys is None else ConsoleKeys({"\n": lambda: trainer.request_stop("key"), **keys})
    )
    with signals, listening:
        if console.is_terminal:
            tell(keys_help)
        try:
            trainer.run()
        except KeyboardInterrupt:
            tell(f"left at once; {saved_state(snapshot)}")
            if on_leaving is not None:
                on_leaving()
            return 128 + signal.SIGINT
    iteration = trainer.updater.state.iteration
    if trainer.status == "finished":
        tell(f"finished: all {iteration:,} iterations are trained and saved")
    else:
        tell(f"stopped at iteration {iteration:,}; {saved_state(snapshot)}")
    return signals.exit_code


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
def open_console(level: str, path: Path | None) -> Generator[tuple[Console, Tell]]:
    """A console on the standard output that outlives its reader, with the logging of :func:`training_logging`.

    An error that ends the training is logged on its way to the command line, which shows it.

    :returns: the console, and what shows a line there and writes it to the logs.
    """
    console = Console(highlight=False, markup=False, soft_wrap=True, file=cast("IO[str]", SteadyStream(sys.stdout)))
    with training_logging(level, path) as say_to_logs:

        def tell(line: str) -> None:
            console.print(line)
            say_to_logs(line)

        try:
            yield console, tell
        except Exception as error:
            say_to_logs(logged_error(error))
            raise


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
