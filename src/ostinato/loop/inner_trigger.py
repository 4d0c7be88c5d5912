"""The trigger that an extension asks itself, while the trainer calls the extension in every iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ostinato.loop.triggers.get_trigger import get_trigger
from ostinato.loop.triggers.limit_trigger import LimitTrigger
from ostinato.loop.triggers.parts import group_of, shown
from ostinato.loop.triggers.time_trigger import TimeTrigger
from ostinato.loop.triggers.trigger import Trigger, decided_by

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView, TriggerFunction


def get_inner_trigger(argument: Any) -> TriggerFunction:
    """What :func:`~ostinato.loop.get_trigger` makes of it, to be asked with :func:`ask_inside` by somebody else than
    the trainer."""
    trigger = get_trigger(argument)
    if isinstance(trigger, Trigger):
        trigger.asked_elsewhere = True  # so the trainer, if it asks the same object, knows that it is not alone
    return trigger


def ask_inside(trigger: TriggerFunction, trainer: TrainerView) -> bool:
    """The answer in this iteration: one object that is asked in several places gives all of them the same."""
    return trigger.ask_once(trainer) if isinstance(trigger, Trigger) else trigger(trainer)


class InnerTrigger:
    """Says when an extension reports what it has gathered since.

    One ``Trigger`` object may serve several extensions, as their inner trigger or as the one that the trainer asks: it
    is asked once per iteration, and all get the same answer.

    With several ranks the trainer has all of them ask together before it calls the extension, wherever that one runs
    and whatever it does on which rank (RK-4). So an extension that only rank 0 runs may wait for the mean of a value
    over all ranks. Kept as an attribute of the extension it is found by itself.

    :param argument: whatever :func:`~ostinato.loop.get_trigger` takes.
    :raises ArgumentTypeError: when it takes no such thing.
    :raises ArgumentValueError: for a bad text, unit or number.
    """

    def __init__(self, argument: Any) -> None:
        self._trigger = get_inner_trigger(argument)
        # Time passes slowly; anything else may be true for one iteration only.
        self._is_slow = isinstance(self._trigger, TimeTrigger | LimitTrigger)
        self._asked_at = 0  # iteration in which the ranks last agreed on something slow
        self._agreed_in: Any = None  # the observation of the iteration in which the ranks last asked together
        self._agreed = False

    @property
    def is_equal_on_all_ranks(self) -> bool:
        """Whether the answer follows from the counters alone, so that the ranks need not ask together."""
        return decided_by(self._trigger) == "counters"

    def __call__(self, trainer: TrainerView) -> bool:
        if trainer.observation is self._agreed_in:
            return self._agreed
        return ask_inside(self._trigger, trainer)

    def ask_together(self, trainer: TrainerView, every: int) -> None:
        """Agree on the answer that the extension gets when it asks in this iteration. A collective, for triggers that
        are not equal on all ranks anyway.

        :param every: what passes slowly is agreed on when another so many iterations are over.
        """
        group, iteration = group_of(trainer), trainer.updater.state.iteration
        self._agreed_in, self._agreed = trainer.observation, False
        if self._is_slow:
            if iteration // every == self._asked_at // every:
                return
            self._asked_at = iteration
        kind = decided_by(self._trigger)
        answer = bool(ask_inside(self._trigger, trainer)) if kind == "ranks" or group.rank == 0 else False
        self._agreed = group.broadcast(answer) if kind == "rank0" else answer

    def initialize(self, trainer: TrainerView) -> None:
        """Take the base line, after a saved state was loaded and before the first update."""
        self._asked_at = trainer.updater.state.iteration
        if isinstance(self._trigger, Trigger):
            self._trigger.initialize(trainer)

    def state_dict(self) -> dict[str, Any]:
        """The memory of the trigger."""
        return self._trigger.state_dict() if isinstance(self._trigger, Trigger) else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved memory."""
        if isinstance(self._trigger, Trigger):
            self._trigger.load_state_dict(state)

    def __repr__(self) -> str:
        return shown(self._trigger)


def inner_triggers(extension: Any) -> list[InnerTrigger]:
    """The triggers that an extension asks itself."""
    return [value for value in getattr(extension, "__dict__", {}).values() if isinstance(value, InnerTrigger)]
