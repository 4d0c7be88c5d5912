"""Remembers that a stop trigger has ended the run, for the next process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ostinato.loop.triggers.function_trigger import FunctionTrigger
from ostinato.loop.triggers.parts import shown
from ostinato.loop.triggers.trigger import Trigger

if TYPE_CHECKING:
    from ostinato.loop.protocols import TriggerFunction


class StopMemory:
    """A trigger that has stopped a run keeps saying so, also after a resume, unless its limit was raised (ST-3).

    A limit says so by itself, for its counter does not go back. Most others would not: an interval has its next
    boundary far away, and a value that was good enough is not reported again before the next update. What is remembered
    is the text of the trigger, which shows its settings: with other settings it decides anew. A trigger with a plain
    function in it is asked and not remembered, because its text does not tell whether the function has changed.

    :param trigger: the stop trigger.
    """

    def __init__(self, trigger: TriggerFunction) -> None:
        self._trigger = trigger
        self._stopped_by: str | None = None

    def note(self) -> None:
        """The trigger has just ended the run."""
        if _is_told_by_its_text(self._trigger):
            self._stopped_by = shown(self._trigger)

    def holds(self) -> bool:
        """Whether the trigger, as it is now, has ended the run already."""
        if self._stopped_by != shown(self._trigger):
            self._stopped_by = None
        return self._stopped_by is not None

    def state(self) -> str | None:
        """What travels with the run: the text of the trigger that has ended it."""
        return self._stopped_by

    def load(self, state: str | None) -> None:
        """Take over what was saved."""
        self._stopped_by = state


def _is_told_by_its_text(trigger: Any) -> bool:
    if not isinstance(trigger, Trigger) or isinstance(trigger, FunctionTrigger):
        return False
    return all(_is_told_by_its_text(part) for part in getattr(trigger, "parts", []))
