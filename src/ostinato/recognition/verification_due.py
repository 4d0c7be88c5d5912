"""When a recognition training is measured."""

from __future__ import annotations

from ostinato.loop import TrainerView, Trigger


class VerificationDue(Trigger):
    """Fires every so many updates, and with the last one of the run.

    :param every: 0: with the last one alone.
    :param last: number of the run's last update.
    """

    decided = "counters"

    def __init__(self, every: int, last: int) -> None:
        self._every = every
        self._last = last

    def __call__(self, trainer: TrainerView) -> bool:
        """Whether it is time."""
        iteration = trainer.updater.state.iteration
        return iteration == self._last or (self._every > 0 and iteration % self._every == 0)

    def __repr__(self) -> str:
        return f"every {self._every} updates and with number {self._last}"
