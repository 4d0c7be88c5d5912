"""What the extensions have in common that stop a run before a number that is not finite can be saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ostinato.errors import NonFiniteError
from ostinato.loop import Extension, TrainerView
from ostinato.loop.inner_trigger import InnerTrigger


class NonNumberGuard(Extension):
    """Looks for numbers that are not finite when ``check_trigger`` fires, and whenever the run is about to be saved.

    Subclasses override :meth:`find` and, if they collect something in every iteration, :meth:`note`.

    :param check_trigger: when it looks, as :func:`~ostinato.loop.get_trigger` reads it.
    """

    trigger = (1, "iteration")

    def __init__(self, check_trigger: Any) -> None:
        self._check_trigger = InnerTrigger(check_trigger)
        self._error: NonFiniteError | None = None

    def find(self) -> NonFiniteError | None:
        """Look now; the error that stops the run, or ``None`` while all is well. May wait for the device."""
        raise NotImplementedError(f"{type(self).__name__} must say what it looks for: override find.")

    def note(self, trainer: TrainerView) -> bool:
        """Called in every iteration, and must not wait for the device; whether to look now in any case."""
        return False

    def initialize(self, trainer: TrainerView) -> None:
        """Take the base line of the check trigger."""
        self._check_trigger.initialize(trainer)

    def __call__(self, trainer: TrainerView) -> None:
        """Look when it is time.

        :raises NonFiniteError: when a number is not finite.
        """
        must_look = self.note(trainer)
        if self._check_trigger(trainer) or must_look:
            self.check()

    def check(self) -> None:
        """Look now.

        :raises NonFiniteError: when a number is not finite; then again at every further check, so that nothing that
            saves on the way out can save this state.
        """
        if self._error is None:
            self._error = self.find()
        if self._error is not None:
            raise self._error

    def state_dict(self) -> dict[str, Any]:
        """Nothing to remember; but who asks is about to save, so this is the last moment to look."""
        self.check()
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing was remembered."""

    def finalize(self, trainer: TrainerView) -> None:
        """Look a last time, unless the run has failed anyway."""
        if trainer.status != "failed":
            self.check()
