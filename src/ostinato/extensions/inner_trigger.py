"""The trigger that an extension asks itself, while the trainer calls the extension in every iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ostinato.loop import TrainerView, Trigger, get_trigger


class InnerTrigger:
    """Says when an extension reports what it has gathered since.

    One ``Trigger`` object may serve several extensions, as their inner trigger or as the one that the trainer asks: it
    is asked once per iteration, and all get the same answer.

    :param argument: whatever :func:`~ostinato.loop.get_trigger` takes.
    :raises ArgumentTypeError: when it takes no such thing.
    :raises ArgumentValueError: for a bad text, unit or number.
    """

    def __init__(self, argument: Any) -> None:
        self._trigger = get_trigger(argument)
        if isinstance(self._trigger, Trigger):
            self._trigger.asked_elsewhere = True

    def __call__(self, trainer: TrainerView) -> bool:
        return self._trigger.ask_once(trainer) if isinstance(self._trigger, Trigger) else self._trigger(trainer)

    def initialize(self, trainer: TrainerView) -> None:
        """Take the base line, after a saved state was loaded and before the first update."""
        if isinstance(self._trigger, Trigger):
            self._trigger.initialize(trainer)

    def state_dict(self) -> dict[str, Any]:
        """The memory of the trigger."""
        return self._trigger.state_dict() if isinstance(self._trigger, Trigger) else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved memory."""
        if isinstance(self._trigger, Trigger):
            self._trigger.load_state_dict(state)
