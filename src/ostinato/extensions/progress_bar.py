"""Shows the progress of a run as bars."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ostinato.errors import ArgumentTypeError
from ostinato.extensions.progress import ProgressDisplay, clock_time
from ostinato.loop import IntervalTrigger, TrainerView
from ostinato.loop.triggers import LimitTrigger
from ostinato.loop.triggers.run_limit import limit_of_run
from ostinato.loop.triggers.units import exact_number

if TYPE_CHECKING:
    from rich.console import Console


class ProgressBar(ProgressDisplay):
    """Bars over the whole training and over the epoch under way, with the speed and the time left ::

             total [#######...........................................] 14.60%
        this epoch [##############....................................] 29.20%
               146 iterations, 1 of 10 epochs
            12.351 iterations/s · 0:01:09 left

    for a program of one's own, as Chainer's users know it: shown every ``update_interval`` iterations, without losses.
    The line that the recipes' command lines show is :class:`~ostinato.extensions.Progress`.

    On a terminal the bars are rewritten in place; anywhere else (a file, a pipe) each time one line is written, with
    the bar over the whole training. Only rank 0 shows them.

    :param training_length: the whole training as a number and a unit, such as ``(10, "epoch")``; by default what the
        trainer's stop trigger says. Without either there is no bar over the whole and no time left.
    :param update_interval: iterations between two displays.
    :param bar_length: letters of a bar.
    :param write: called with each line, without a line break, where there is no terminal.
    :param console: the rich console to show them on; by default one on the standard output.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: for an unknown unit or a number out of range.
    """

    def __init__(
        self,
        training_length: tuple[float, str] | None = None,
        update_interval: int = 100,
        bar_length: int = 50,
        *,
        write: Callable[[str], Any] | None = None,
        console: Console | None = None,
    ) -> None:
        super().__init__(write, console=console)
        self._length: LimitTrigger | None = None
        if training_length is not None:
            if not isinstance(training_length, tuple | list) or len(training_length) != 2:
                raise ArgumentTypeError(
                    f"ProgressBar: training_length must be a number and a unit, not {training_length!r}.",
                    advice="Give (10, 'epoch'), say.",
                    value=training_length,
                )
            self._length = LimitTrigger(*training_length)
        self.trigger = IntervalTrigger(
            exact_number(update_interval, "update_interval", "ProgressBar", whole=True), "iteration"
        )
        self._bar_length = int(exact_number(bar_length, "bar_length", "ProgressBar", whole=True))
        self._is_default = write is None and console is None

    def initialize(self, trainer: TrainerView) -> None:
        """Find the end of the training, and take the place on the terminal."""
        if self._length is None:
            self._length = limit_of_run(getattr(trainer, "stop_trigger", None))
        if self._is_default:
            from rich.console import Console

            self._use(Console())  # now, not in the constructor: the standard output may be replaced until then
        super().initialize(trainer)

    def line(self, trainer: TrainerView) -> str:
        """The bars as they would be shown now."""
        state = trainer.updater.state
        done = self._fraction_done(trainer)
        total = [] if done is None else [self._bar(done)]
        place = f"{_shown(state.iteration)} iteration{'' if state.iteration == 1 else 's'}"
        if self._length is not None and self._length.unit == "epoch":
            place += f", {_shown(state.epoch)} of {_shown(self._length.limit)} epochs"
        elif state.updates_per_epoch or state.epoch:
            place += f", {_shown(state.epoch)} epoch{'' if state.epoch == 1 else 's'}"
        pace = " · ".join(self._pace(done, trainer))
        if not self._rewrites:
            return " · ".join(part for part in (*total, place, pace) if part)
        lines = [f"     total {bar}" for bar in total]
        if state.updates_per_epoch:
            lines.append(f"this epoch {self._bar(Fraction(state.iteration_in_epoch, state.updates_per_epoch))}")
        for line in (place, pace):
            if line:
                number, _, rest = line.partition(" ")
                lines.append(f"{number:>10} {rest}")
        return "\n".join(lines)

    def _fraction_done(self, trainer: TrainerView) -> float | Fraction | None:
        limit = self._length
        if limit is None:
            return None
        state = trainer.updater.state
        now: Any = {
            "iteration": state.iteration,
            "epoch": state.epoch if state.epoch_detail is None else state.epoch_detail,
            "sample": state.samples,
            "token": state.tokens or 0,
            "second": trainer.elapsed_time,
        }[limit.unit]
        return min(now / limit.limit, 1) if now else 0

    def _pace(self, done: float | Fraction | None, trainer: TrainerView) -> list[str]:
        speed = self._speed()
        if speed is None:
            return []
        rate = speed[0]
        pace = [f"{rate:.5g} iterations/s" if rate >= 0.1 else f"{1 / rate:.5g} s/iteration"]
        if done and done < 1:
            if self._length is not None and self._length.unit == "second":
                seconds = float(self._length.limit) - trainer.elapsed_time
            else:
                iteration = trainer.updater.state.iteration
                seconds = (iteration / float(done) - iteration) / rate
            pace.append(f"{clock_time(seconds)} left")
        return pace

    def _bar(self, done: float | Fraction) -> str:
        marks = int(done * self._bar_length)
        return f"[{'#' * marks}{'.' * (self._bar_length - marks)}] {float(done):.2%}"


def _shown(number: float | Fraction) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{float(number):g}"
