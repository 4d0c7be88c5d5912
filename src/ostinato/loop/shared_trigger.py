"""One trigger object for several extensions (GT-2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ostinato.loop.triggers.trigger import Trigger

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView, TriggerFunction


class TriggerStandIn:
    """Stands in for a trigger while a run lasts; is asked in its place, and looks like it otherwise."""

    def __init__(self, trigger: TriggerFunction) -> None:
        self.trigger = trigger

    def __getattr__(self, name: str) -> Any:
        if name == "trigger":  # not there yet: this object is only being made
            raise AttributeError(name)
        return getattr(self.trigger, name)

    def __repr__(self) -> str:
        return repr(self.trigger)


class _AskedOnce(TriggerStandIn):
    """Asks a trigger once per iteration and repeats the answer: a second question would find the index unchanged."""

    def __init__(self, trigger: TriggerFunction) -> None:
        super().__init__(trigger)
        self._observation: Any = None  # every iteration has a new one, so it tells iterations apart
        self._answer = False

    def __call__(self, trainer: TrainerView) -> bool:
        if isinstance(self.trigger, Trigger):  # and not a stand-in: others may ask the trigger too
            return self.trigger.ask_once(trainer)
        if trainer.observation is not self._observation:
            self._answer = self.trigger(trainer)
            self._observation = trainer.observation
        return self._answer


@contextmanager
def triggers_of_run(
    triggers: Sequence[TriggerFunction],
    stop_trigger: TriggerFunction,
    agreed: Callable[[TriggerFunction, bool], TriggerFunction] | None = None,
) -> Generator[tuple[list[TriggerFunction], TriggerFunction]]:
    """The same triggers and stop trigger, ready to be asked by the loop while this is open.

    A ``Trigger`` object that appears more than once, be it as a part of a combination, is asked once per iteration.

    :param agreed: given each trigger that is no combination, and whether it belongs to the stop trigger; returns what
        is asked in its place.
    """
    uses = Counter(id(trigger) for trigger in _everything([*triggers, stop_trigger]) if isinstance(trigger, Trigger))
    ready: dict[int, TriggerFunction] = {}
    opened: list[tuple[list[TriggerFunction], list[TriggerFunction]]] = []

    def prepare(trigger: TriggerFunction, stops: bool) -> TriggerFunction:
        if id(trigger) in ready:
            return ready[id(trigger)]
        result = trigger
        parts = _parts(trigger)
        if parts:
            opened.append((parts, list(parts)))
            parts[:] = [prepare(part, stops) for part in parts]
        elif agreed is not None:
            result = agreed(trigger, stops)
        if uses[id(trigger)] > 1 or getattr(trigger, "asked_elsewhere", False):
            result = _AskedOnce(result)
        if isinstance(trigger, Trigger):
            ready[id(trigger)] = result
        return result

    try:
        stop = prepare(stop_trigger, True)
        yield [prepare(trigger, False) for trigger in triggers], stop
    finally:
        for parts, before in opened:
            parts[:] = before


def _everything(triggers: Sequence[TriggerFunction]) -> list[TriggerFunction]:
    """Triggers and the parts of combinations, each as often as somebody asks it."""
    found: list[TriggerFunction] = []
    seen: set[int] = set()
    waiting = list(triggers)
    while waiting:
        trigger = waiting.pop()
        found.append(trigger)
        if id(trigger) not in seen:  # a combination asks its parts once, however many ask it
            seen.add(id(trigger))
            waiting += _parts(trigger)
    return found


def _parts(trigger: TriggerFunction) -> list[TriggerFunction]:
    parts = getattr(trigger, "parts", None)
    return parts if isinstance(trigger, Trigger) and isinstance(parts, list) else []
