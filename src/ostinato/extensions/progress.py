"""Shows how far a run has come, how fast it goes, and how long it will take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ostinato.loop import PRIORITY_READER, Extension, TimeTrigger, TrainerView, is_scalar, read_scalars

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

_WINDOW = 20  # marks over which the speed is averaged: short enough to follow a change, long enough to be calm


class ProgressDisplay(Extension):
    """What the displays of progress share: the speed, the place on the screen, and the last words.

    A subclass overrides :meth:`line`. On a terminal the display is rewritten in place; elsewhere every line stays. Only
    rank 0 shows anything. Nothing is written but through ``console`` or ``write``.

    :param write: called with each line, without a line break.
    :param console: a rich console; used if it is a terminal, otherwise ``write`` is, or the console's plain printing.
    """

    priority = PRIORITY_READER - 50  # after the logs: a line on the screen is in the log as well

    def __init__(self, write: Callable[[str], Any] | None = None, *, console: Console | None = None) -> None:
        self._write = write
        self._console: Console | None = None
        self._use(console)
        self._live: Live | None = None
        self._is_active = False
        self._shown_at = -1  # the iteration of the last line that stays
        self._marks: deque[tuple[int, int, float]] = deque(maxlen=_WINDOW)  # iteration, samples, elapsed seconds

    def _use(self, console: Console | None) -> None:
        self._console = console if console is not None and (console.is_terminal or self._write is None) else None
        self._rewrites = self._console is not None and self._console.is_terminal

    def initialize(self, trainer: TrainerView) -> None:
        """Take the place on the terminal."""
        self._mark(trainer)
        self._is_active = trainer.group.rank == 0
        if self._is_active and self._rewrites:
            from rich.live import Live

            # Without a refresh thread: the line changes when the trigger fires, and nothing runs beside the training.
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def __call__(self, trainer: TrainerView) -> None:
        """Show a line."""
        if not self._is_active:
            return
        self._mark(trainer)
        line = self.line(trainer)
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(line), refresh=True)  # folded on a narrow terminal: the losses stand last
        else:
            self._show(line)
            self._shown_at = trainer.updater.state.iteration

    def finalize(self, trainer: TrainerView) -> None:
        """Give the place on the terminal back and leave the last line there."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        iteration = trainer.updater.state.iteration
        if not self._is_active or iteration == self._shown_at or iteration == self._marks[0][0]:
            return  # another rank's business, said already, or nothing was trained
        self._mark(trainer)
        self._show(self.line(trainer))

    def line(self, trainer: TrainerView) -> str:
        """What would be shown now; may span lines."""
        raise NotImplementedError(f"{type(self).__name__} must say what it shows: override line.")

    def _speed(self) -> tuple[float, float, int, int] | None:
        """Iterations per second over the last marks, and the seconds, iterations and samples between them."""
        first, last = self._marks[0], self._marks[-1]
        seconds, iterations = last[2] - first[2], last[0] - first[0]
        if seconds <= 0 or iterations <= 0:
            return None
        return iterations / seconds, seconds, iterations, last[1] - first[1]

    def _mark(self, trainer: TrainerView) -> None:
        state = trainer.updater.state
        self._marks.append((state.iteration, state.samples, trainer.elapsed_time))

    def _show(self, line: str) -> None:
        if self._write is not None:
            self._write(line)
        elif self._console is not None:
            # In a file a line stays one line, however long; a terminal folds it.
            self._console.print(line, markup=False, highlight=False, soft_wrap=not self._console.is_terminal)


class Progress(ProgressDisplay):
    """One line such as ::

        iteration 1,250 of 100,000 · 2.31 it/s · 74 faces/s · 11:52:07 left · loss a 0.01234, b 0.01420

    for a recipe's command line: it tells speed, time left and losses, every so many seconds. The bars that users of
    Chainer know, over iterations and epochs, are :class:`~ostinato.extensions.ProgressBar`.

    On a terminal the line is rewritten in place twice a second, through the given console; otherwise a new line is
    written every ``every`` seconds. Losses are read from the device only for a line that is shown.

    Nothing is written but through ``console`` or ``write``; one of them is needed.

    :param write: called with each line, without a line break.
    :param console: a rich console; used if it is a terminal, otherwise ``write`` is, or the console's plain printing.
    :param every: seconds between lines where they are not rewritten.
    :param faces_per_iteration: samples that one update sees; by default what the updater counts.
    :param prefix: observed losses ``<prefix><side>`` are shown.
    """

    name = "progress"

    def __init__(
        self,
        write: Callable[[str], Any] | None = None,
        *,
        console: Console | None = None,
        every: float = 10.0,
        faces_per_iteration: int | None = None,
        prefix: str = "loss/",
    ) -> None:
        super().__init__(write, console=console)
        self.trigger = TimeTrigger(0.5 if self._rewrites else every)
        self.faces_per_iteration = faces_per_iteration
        self.prefix = prefix

    def line(self, trainer: TrainerView) -> str:
        """The line as it would be shown now. Reads losses from the device."""
        iteration = trainer.updater.state.iteration
        total = trainer.max_iteration
        parts = [f"iteration {iteration:,}" + (f" of {total:,}" if total is not None else "")]
        speed = self._speed()
        if speed is not None:
            rate, seconds, iterations, faces = speed
            parts.append(f"{rate:.2f} it/s" if rate >= 0.1 else f"{1 / rate:.1f} s/it")
            if self.faces_per_iteration is not None:
                faces = self.faces_per_iteration * iterations
            if faces > 0:
                parts.append(f"{faces / seconds:.{0 if faces >= 10 * seconds else 1}f} faces/s")
            if total is not None and total > iteration:
                parts.append(f"{clock_time((total - iteration) / rate)} left")
        losses = self._losses(trainer)
        if losses:
            parts.append("loss " + ", ".join(f"{name} {value:.5f}" for name, value in losses.items()))
        return " · ".join(parts)

    def _losses(self, trainer: TrainerView) -> dict[str, float]:
        values = {
            name[len(self.prefix) :]: value[0] if isinstance(value, tuple) else value
            for name, value in trainer.observation.items()
            # Only <prefix><side>: what a side's loss is made of would make the line too long.
            if name.startswith(self.prefix) and "/" not in name[len(self.prefix) :]
        }
        values = {name: value for name, value in values.items() if is_scalar(value)}
        if len(values) > 1:
            values.pop("total", None)  # the sides say it already
        return dict(zip(values, read_scalars(list(values.values())), strict=True))


def clock_time(seconds: float) -> str:
    """A duration for people: ``0:05:12``, ``11:52:07``, ``3 days 04:00:00``."""
    whole = max(0, round(seconds))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days} day{'s' if days > 1 else ''} {hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}"
