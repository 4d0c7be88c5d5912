"""The trigger that an extension asks itself, while the trainer calls the extension in every iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from ostinato.loop import TrainerView, Trigger, get_trigger

# What a trigger that two extensions share has answered in this iteration; the observation tells iterations apart.
_answers: WeakKeyDictionary[Trigger, tuple[Any, bool]] = WeakKeyDictionary()


class InnerTrigger:
    """Says when an extension reports what it has gathered since.

    One ``Trigger`` object may serve several extensions: it is asked once per iteration, and all get the same answer.

    :param argument: whatever :func:`~ostinato.loop.get_trigger` takes.
    :raises ArgumentTypeError: when it takes no such thing.
    :raises ArgumentValueError: for a bad text, unit or number.
    """

    def __init__(self, argument: Any) -> None:
        self._trigger = get_trigger(argument)

    def __call__(self, trainer: TrainerView) -> bool:
        trigger = self._trigger
        if not isinstance(trigger, Trigger):
            return trigger(trainer)
        observation, answer = _answers.get(trigger, (None, False))
        if observation is not trainer.observation:
            answer = trigger(trainer)
            _answers[trigger] = trainer.observation, answer
        return answer

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
