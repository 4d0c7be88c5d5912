"""Saving a state before the first update of a session."""

from __future__ import annotations

from collections.abc import Callable

from ostinato.loop import PRIORITY_SNAPSHOT, Extension, TrainerView


class SavedStart(Extension):
    """Saves once everything is initialized, if that was asked for by then: a rate that was found or lowered must not
    be lost with the process.

    :param save: called with the trainer.
    """

    priority = PRIORITY_SNAPSHOT - 100  # after the snapshot is ready to save
    name = "saved_start"
    trigger = None

    def __init__(self, save: Callable[[TrainerView], None]) -> None:
        self._save = save
        self.is_wanted = False

    def __call__(self, trainer: TrainerView) -> None:
        """Nothing; all is done before the first update."""

    def initialize(self, trainer: TrainerView) -> None:
        """Save."""
        if self.is_wanted:
            self._save(trainer)
