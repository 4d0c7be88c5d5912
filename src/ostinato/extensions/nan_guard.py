"""Stops a run whose loss is no longer a finite number, before it can be saved."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ostinato.errors import NonFiniteError, NonFiniteLossError
from ostinato.extensions.non_number_guard import NonNumberGuard
from ostinato.extensions.pending_losses import NotedLosses, PendingLosses
from ostinato.loop import PRIORITY_READER, TrainerView

_log = logging.getLogger(__name__)

_MOST_FILES = 8  # named per side in the message; all of them are in the fields
_REMEDIES = (
    "Start the same command again to go on from the newest saved state; if it happens again, look at these files, "
    "lower the learning rate, switch gradient clipping on, or train without mixed precision."
)


class NanGuard(NonNumberGuard):
    """Watches one loss; when it is not finite, raises an error that names what is wrong.

    The loss is read when ``check_trigger`` fires, together with those of the iterations since, and always when the
    state of the run is about to be saved, whoever saves: a state whose loss is not finite is never committed. A seldom
    check spares an accelerator the wait; on a processor it costs nothing to look in every iteration.

    :param key: the observed loss that is watched. It has to be one that every other loss is part of.
    :param prefix: losses with this prefix are named in the message. A name ``loss/<side>/...`` tells the side.
    :param gradient: an observed number that is watched as well where it is reported: one that is finite exactly when
        all gradients are. Gradients can be ruined while every loss is fine.
    :param check_trigger: when the loss is read.
    :param protect: stop the run. Otherwise say so once and go on.
    :param explain: says in words what the names stand for, as a sentence, or nothing: those of losses, or that of
        ``gradient`` alone. By default the sides are named.
    :param good_generation: called for the message: what is known about the newest good state, as a sentence.
    :param remedies: for the message: what can be done about it; by default what helps with any model.
    :param show_file: gives a file of the batch as text for the message.
    """

    priority = PRIORITY_READER + 50  # before the writers of logs, so the log's last line is the one before
    name = "nan_guard"

    def __init__(
        self,
        key: str = "loss/total",
        *,
        prefix: str = "loss/",
        gradient: str | None = None,
        check_trigger: Any = (1, "iteration"),
        protect: bool = True,
        explain: Callable[[Sequence[str]], str] | None = None,
        good_generation: Callable[[], str] | None = None,
        remedies: str = _REMEDIES,
        show_file: Callable[[Any], str] = str,
    ) -> None:
        super().__init__(check_trigger)
        self.key = key
        self.prefix = prefix
        self.gradient = gradient
        self.protect = protect
        self._explain = explain
        self._good_generation = good_generation
        self._remedies = remedies
        self._show_file = show_file
        self._pending = PendingLosses()
        self._warned = False

    def note(self, trainer: TrainerView) -> bool:
        """Keep the losses of this iteration."""
        observation = trainer.observation
        if self.key in observation:
            losses = {name: value for name, value in observation.items() if name.startswith(self.prefix)}
            losses[self.key] = observation[self.key]
            if self.gradient is not None and self.gradient in observation:
                losses[self.gradient] = observation[self.gradient]
            files = getattr(trainer.updater, "last_files", None)
            self._pending.note(NotedLosses(trainer.updater.state.iteration, losses, files))
        return self._pending.is_full

    def find(self) -> NonFiniteError | None:
        """Read the losses kept since the last check; the error about the first that is not finite, if it should stop
        the run."""
        noted = self._pending.take_first_not_finite([self.key, *([self.gradient] if self.gradient else ())])
        if noted is None:
            return None
        error = self._describe(noted)
        if self.protect:
            return error
        if not self._warned:
            self._warned = True
            _log.warning("%s The protection is off: training goes on.", error.what)
        return None

    def _describe(self, noted: NotedLosses) -> NonFiniteError:
        iteration, files = noted.iteration, noted.files
        values = noted.read()
        wrong = [name for name, value in values.items() if not math.isfinite(value)]
        losses = [name for name in wrong if name != self.gradient]
        causes = [name for name in losses if name != self.key] or losses or wrong
        sides = sorted({name[len(self.prefix) :].split("/")[0] for name in losses if name != self.key})
        if losses:
            what = f"The loss is not a finite number at iteration {iteration}: "
            what += ", ".join(f"{name} is {values[name]}" for name in causes) + "."
            if self._explain is not None:
                what += f" {self._explain(causes)}"
            elif sides:
                what += f" Side{'s' if len(sides) > 1 else ''}: {', '.join(sides)}."
        else:
            what = (
                f"The gradients are not finite numbers at iteration {iteration}, though every loss is: "
                f"{self.gradient} is {values[causes[0]]}."
            )
            if self._explain is not None:
                what = f"{what} {self._explain(causes)}".rstrip()
        what += _describe_files(files, self._show_file)
        good = self._good_generation() if self._good_generation is not None else ""
        kind, error = ("loss", NonFiniteLossError) if losses else ("grad", NonFiniteError)
        return error(
            what,
            advice=f"{good + chr(10) if good else ''}Nothing of this was saved. {self._remedies}",
            kind=kind,
            names=wrong,
            losses=values,
            iteration=iteration,
            sides=sides,
            files=files,
        )


def _describe_files(files: Any, show: Callable[[Any], str]) -> str:
    if not files:
        return ""
    groups = files.items() if isinstance(files, Mapping) else enumerate(files, start=1)
    parts = []
    for name, group in groups:
        listed = [show(file) for file in (group if isinstance(group, list | tuple) else [group])]
        more = f" and {len(listed) - _MOST_FILES} more" if len(listed) > _MOST_FILES else ""
        parts.append(f"{name}: {', '.join(listed[:_MOST_FILES])}{more}")
    return f" The batch: {'; '.join(parts)}."
