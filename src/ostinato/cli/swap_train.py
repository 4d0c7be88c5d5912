"""What ``ostinato swap train`` shows and how it ends; the training itself is :mod:`ostinato.swap.training`."""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

from rich.console import Console
from rich.table import Table

from ostinato.cli.keys import ConsoleKeys
from ostinato.cli.steady_output import SteadyStream
from ostinato.config import SwapOptions, read_options, render_yaml
from ostinato.errors import NonFiniteError, OstinatoError, UsageError
from ostinato.extensions import Progress, StopSignals
from ostinato.faces.file_names import shown_name
from ostinato.loop import Extension, TrainerView
from ostinato.runs.writer import SaveResult
from ostinato.swap.request import TrainingRequest
from ostinato.swap.training import SwapTraining, build_swap_model, open_training, summary_options
from ostinato.swap.watching import LATEST, saves_and_previews

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


def print_options(config: Path | None, overrides: list[str]) -> None:
    """Print all options with their values, commented, as a YAML file that ``--config`` takes."""
    options = read_options(SwapOptions, config, overrides).options
    Console(highlight=False, soft_wrap=True, markup=False).print(render_yaml(options), end="")


def print_summary(request: TrainingRequest) -> None:
    """Print the layers of the model of a run that is there, or that a new run would have. Touches no folder."""
    console = Console(highlight=False, markup=False)
    options, sides = summary_options(request, console.print)
    model = build_swap_model(options, sides)
    table = Table(title=f"{model.name}: {model.input_size} pixels in, {', '.join(map(str, model.output_sizes))} out")
    for heading in ("part", "layer", "weights"):
        table.add_column(heading)
    table.add_column("parameters", justify="right")
    total = 0
    for part_name, part in model.named_children():
        for layer_name, layer in part.named_children():
            shapes = [tuple(parameter.shape) for parameter in layer.parameters()]
            count = sum(parameter.numel() for parameter in layer.parameters())
            if count:
                table.add_row(part_name, layer_name, " ".join("x".join(map(str, s)) for s in shapes), f"{count:,}")
        part_count = sum(parameter.numel() for parameter in part.parameters())
        table.add_row(part_name, "all", "", f"{part_count:,}", style="bold", end_section=True)
        total += part_count
    console.print(table)
    console.print(f"{total:,} parameters: {total * 4 / 2**20:,.0f} MiB of weights, four times that while training.")


def train(
    request: TrainingRequest, *, log_level: str = "info", log_file: Path | None = None, grace: float | None = None
) -> int:
    """Train, showing how it goes. Returns the exit status: 0, or 128 and the number of the signal that ended it."""
    console = Console(highlight=False, markup=False, soft_wrap=True, file=cast("IO[str]", SteadyStream(sys.stdout)))
    with _logging(log_level, log_file) as say_to_file:
        shown: list[Callable[[str], None]] = [console.print, say_to_file]

        def tell(line: str) -> None:
            for show in shown:
                show(line)

        def on_save(result: SaveResult) -> None:
            if result.commit is not None:
                manifest = result.commit.manifest
                why = [reason for reason in manifest.reasons if reason != "latest"]
                average = "" if manifest.average_loss is None else f", average loss {manifest.average_loss:.5f}"
                tell(f"saved iteration {manifest.iteration:,}{average}" + (f" ({', '.join(why)})" if why else ""))

        try:
            while True:
                status = _train_until_failure(request, console, tell, on_save, grace)
                if status is not None:
                    return status
                gc.collect()  # the model that failed is held by cycles, and the next one needs its memory
                request = replace(request, recover=True, find_rate="never")
        except Exception as error:  # shown by the command line; the file is what unattended runs leave to read
            kind = "" if isinstance(error, OstinatoError) else f"{type(error).__name__}: "
            say_to_file(f"Error: {kind}{error}")
            raise


def _train_until_failure(
    request: TrainingRequest,
    console: Console,
    tell: Callable[[str], None],
    on_save: Callable[[SaveResult], None],
    grace: float | None,
) -> int | None:
    """One session. The exit status; None when a number was not finite and the run is to recover by itself."""
    training = None
    try:
        with open_training(request, tell=tell, on_save=on_save) as training:
            if training is None:
                return 0
            return _run(training, console, tell, request.batch_size * len(training.model.sides), grace)
    except NonFiniteError as error:
        # Without a training, recovering itself was refused; and whoever has asked for the end gets it.
        if training is None or not training.recovers or training.trainer.stop_reason is not None:
            raise
        tell(error.what)
    return None


def _run(training: SwapTraining, console: Console, tell: Callable[[str], None], faces: int, grace: float | None) -> int:
    trainer = training.trainer
    trainer.extend(Progress(tell, console=console, faces_per_iteration=faces), ranks=0)

    trainer.extend(_StopNotice(tell), ranks=0)
    keys = ConsoleKeys(
        {
            "\n": lambda: trainer.request_stop("key"),
            "s": saves_and_previews(training.snapshot, training.preview),
            "r": training.preview.request,
            "m": training.preview.toggle_mask,
        }
    )
    if training.device.type != "cpu":
        tell(f"training on {training.device}")
    signals = StopSignals(
        trainer.request_stop, _stop_signals(), grace=grace, saved=lambda: f"{_saved(training).capitalize()}.", tell=tell
    )
    with signals, keys:
        if console.is_terminal:
            tell("keys: Enter save and quit, S save, R new preview, M mask in the preview; Ctrl-C saves and quits")
        try:
            trainer.run()
        except KeyboardInterrupt:
            tell(f"left at once; {_saved(training)}")
            return 128 + signal.SIGINT
    iteration = training.updater.state.iteration
    if trainer.status == "finished":
        tell(f"finished: all {iteration:,} iterations are trained and saved")
    else:
        tell(f"stopped at iteration {iteration:,}; {_saved(training)}")
    preview = training.preview.folder / LATEST
    if preview.exists():
        tell(f"preview: {shown_name(preview)}")
    return signals.exit_code


class _StopNotice(Extension):
    """Says that a stop was asked for and that the state is being saved.

    A large state takes seconds to save. Who sees nothing happen presses Ctrl-C again, and loses what is not saved.
    """

    name = "stop_notice"

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._start_iteration = 0
        self._has_told = False

    def initialize(self, trainer: TrainerView) -> None:
        self._start_iteration = trainer.updater.state.iteration

    def __call__(self, trainer: TrainerView) -> None:
        iteration = trainer.updater.state.iteration
        if trainer.stop_reason in ("key", "signal") and not self._has_told and iteration > self._start_iteration:
            self._has_told = True
            self._tell(f"stopping: iteration {iteration:,} is being saved")

    def finalize(self, trainer: TrainerView) -> None:
        # Asked for after this extension's turn in the last iteration; saving comes later, its priority is lower.
        if trainer.status == "stopped":
            self(trainer)


def _stop_signals() -> list[signal.Signals]:
    """Signals that ask for an orderly end: Ctrl-C, `kill`, a closed terminal, and the warning of batch systems."""
    asked = [signal.SIGINT, signal.SIGTERM]
    for name in ("SIGHUP", "SIGUSR1"):
        number = getattr(signal, name, None)
        # `nohup` has the first one ignored, and who does that wants the training to go on.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            asked.append(number)
    return asked


def _saved(training: SwapTraining) -> str:
    last = training.snapshot.last_saved
    if last is None:
        return "nothing has been saved yet"
    return f"iteration {last:,} is saved, and the same command continues from there"


@contextlib.contextmanager
def _logging(level: str, path: Path | None) -> Generator[Callable[[str], None]]:
    """Set how much the rooms log, and copy what is shown to a file; gives the function that writes a line to it."""
    if level.lower() not in _LEVELS:
        raise UsageError(f"-L/--loglevel is {level!r}.", advice=f"Choose one of: {', '.join(_LEVELS)}.", value=level)
    logger = logging.getLogger("ostinato")
    before = logger.level
    if before != logging.DEBUG:  # --debug shows everything, whatever -L says
        logger.setLevel(_LEVELS[level.lower()])
    # The trainer logs the error that ends it, and so does the command line, in words for people. What is new among the
    # extensions follows from the options, whose changes are shown.
    trainer_loggers = [logging.getLogger(f"ostinato.loop.{name}") for name in ("trainer", "trainer_state")]
    for trainer_logger in trainer_loggers:
        trainer_logger.disabled = before != logging.DEBUG
    handler: logging.Handler = logging.NullHandler()
    if path is not None:
        try:
            handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            logger.setLevel(before)
            raise UsageError(
                f"-F/--logfile {path} cannot be written: {error.strerror or error}.", advice="Give another file."
            ) from error
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    # Of its own, so that the console's handler does not show twice what is printed anyway.
    lines = logging.Logger("lines")
    lines.addHandler(handler)
    try:
        yield lambda line: lines.info("%s", line)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        for trainer_logger in trainer_loggers:
            trainer_logger.disabled = False
        handler.close()
