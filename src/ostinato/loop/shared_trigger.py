"""One trigger object for several extensions (GT-2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ostinato.loop.triggers.trigger import Trigger

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView, TriggerFunction


class _AskedOnce:
    """Asks a trigger once per iteration and repeats the answer: a second question would find the index unchanged."""

    def __init__(self, trigger: TriggerFunction) -> None:
        self._trigger = trigger
        self._observation: Any = None  # every iteration has a new one, so it tells iterations apart
        self._answer = False

    def __call__(self, trainer: TrainerView) -> bool:
        if trainer.observation is not self._observation:
            self._answer = self._trigger(trainer)
            self._observation = trainer.observation
        return self._answer


def share_triggers(
    triggers: Sequence[TriggerFunction], stop_trigger: TriggerFunction
) -> tuple[list[TriggerFunction], TriggerFunction]:
    """The same triggers and stop trigger, with those ``Trigger`` objects wrapped that appear more than once."""
    uses = Counter(id(trigger) for trigger in [*triggers, stop_trigger] if isinstance(trigger, Trigger))
    wrapped: dict[int, TriggerFunction] = {}

    def shared(trigger: TriggerFunction) -> TriggerFunction:
        if uses[id(trigger)] < 2:
            return trigger
        return wrapped.setdefault(id(trigger), _AskedOnce(trigger))

    return [shared(trigger) for trigger in triggers], shared(stop_trigger)
