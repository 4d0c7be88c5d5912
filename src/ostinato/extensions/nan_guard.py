"""Stops a run whose loss is no longer a finite number, before it can be saved."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from ostinato.errors import NonFiniteLossError
from ostinato.loop import PRIORITY_READER, Extension, TrainerView, get_trigger, is_scalar, read_scalars
from ostinato.loop.triggers import Trigger

_log = logging.getLogger(__name__)

_MOST_PENDING = 1000
_MOST_FILES = 8  # named per side in the message; all of them are in the fields
_REMEDIES = (
    "Start the same command again to go on from the newest saved state; if it happens again, look at these files, "
    "lower the learning rate, switch gradient clipping on, or train without mixed precision."
)


class NanGuard(Extension):
    """Watches one loss; when it is not finite, raises an error that names what is wrong.

    The loss is read when ``check_trigger`` fires, together with those of the iterations since, and always when the
    state of the run is about to be saved, whoever saves: a state whose loss is not finite is never committed. A seldom
    check spares an accelerator the wait; on a processor it costs nothing to look in every iteration.

    :param key: the observed loss that is watched. It has to be one that every other loss is part of.
    :param prefix: losses with this prefix are named in the message. A name ``loss/<side>/...`` tells the side.
    :param check_trigger: when the loss is read.
    :param protect: stop the run. Otherwise say so once and go on.
    :param good_generation: called for the message: what is known about the newest good state, as a sentence.
    :param remedies: for the message: what can be done about it; by default what helps with any model.
    :param show_file: gives a file of the batch as text for the message.
    """

    trigger = (1, "iteration")
    priority = PRIORITY_READER + 50  # before the writers of logs, so the log's last line is the one before
    name = "nan_guard"

    def __init__(
        self,
        key: str = "loss/total",
        *,
        prefix: str = "loss/",
        check_trigger: Any = (1, "iteration"),
        protect: bool = True,
        good_generation: Callable[[], str] | None = None,
        remedies: str = _REMEDIES,
        show_file: Callable[[Any], str] = str,
    ) -> None:
        self.key = key
        self.prefix = prefix
        self.protect = protect
        self._check_trigger = get_trigger(check_trigger)
        self._good_generation = good_generation
        self._remedies = remedies
        self._show_file = show_file
        # Per unchecked iteration: its number, its losses, the files of its batch.
        self._pending: list[tuple[int, dict[str, Any], Any]] = []
        self._error: NonFiniteLossError | None = None
        self._warned = False

    def initialize(self, trainer: TrainerView) -> None:
        """Take the base line of the check trigger."""
        if isinstance(self._check_trigger, Trigger):
            self._check_trigger.initialize(trainer)

    def __call__(self, trainer: TrainerView) -> None:
        """Note the losses of this iteration; read them when it is time.

        :raises NonFiniteLossError: when one is not finite and ``protect`` is set.
        """
        observation = trainer.observation
        if self.key in observation:
            losses = {name: value for name, value in observation.items() if name.startswith(self.prefix)}
            losses[self.key] = observation[self.key]
            files = getattr(trainer.updater, "last_files", None)
            self._pending.append((trainer.updater.state.iteration, losses, files))
        if self._check_trigger(trainer) or len(self._pending) >= _MOST_PENDING:
            self.check()

    def check(self) -> None:
        """Read the losses noted since the last check.

        :raises NonFiniteLossError: when one is not finite and ``protect`` is set; then again at every further check,
            so that nothing that saves on the way out can save this state.
        """
        if self._error is not None:
            raise self._error
        pending, self._pending = self._pending, []
        numbers = read_scalars([_plain(losses[self.key]) for _, losses, _ in pending])
        for (iteration, losses, files), number in zip(pending, numbers, strict=True):
            if math.isfinite(number):
                continue
            error = self._describe(iteration, losses, files)
            if self.protect:
                self._error = error
                raise error
            if not self._warned:
                self._warned = True
                _log.warning("%s The protection is off: training goes on.", error.what)
            return

    def state_dict(self) -> dict[str, Any]:
        """Nothing to remember; but who asks is about to save, so this is the last moment to look."""
        self.check()
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing was remembered."""

    def finalize(self, trainer: TrainerView) -> None:
        """Look at the last losses, unless the run has failed anyway."""
        if trainer.status != "failed":
            self.check()

    def _describe(self, iteration: int, losses: Mapping[str, Any], files: Any) -> NonFiniteLossError:
        scalars = {name: _plain(value) for name, value in losses.items() if is_scalar(_plain(value))}
        values = dict(zip(scalars, read_scalars(list(scalars.values())), strict=True))
        wrong = {name: value for name, value in values.items() if not math.isfinite(value)}
        causes = [name for name in wrong if name != self.key] or [self.key]
        sides = sorted({name[len(self.prefix) :].split("/")[0] for name in causes if name != self.key})
        what = f"The loss is not a finite number at iteration {iteration}: "
        what += ", ".join(f"{name} is {wrong[name]}" for name in causes) + "."
        if sides:
            what += f" Side{'s' if len(sides) > 1 else ''}: {', '.join(sides)}."
        what += _describe_files(files, self._show_file)
        good = self._good_generation() if self._good_generation is not None else ""
        return NonFiniteLossError(
            what,
            advice=f"{good + chr(10) if good else ''}Nothing of this was saved. {self._remedies}",
            losses=values,
            iteration=iteration,
            sides=sides,
            files=files,
        )


def _plain(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) and len(value) == 2 else value


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
