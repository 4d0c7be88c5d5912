"""The base class of triggers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView

Decided = Literal["counters", "rank0", "ranks"]
"""Where the answer of a trigger comes from, in a world of several ranks (RK-3, RK-4).

``counters``: a function of the updater's counters and of earlier answers, so equal on all ranks without a message.
``rank0``: of something that differs between ranks, such as time; the answer of rank 0 counts.
``ranks``: the trigger itself agrees with the other ranks through ``trainer.group``, so every rank asks it in every
iteration.
"""


class Trigger:
    """Answers "now?" once per iteration. Says *when*; extensions say *what*.

    Any callable that takes the trainer and returns a boolean is a valid trigger. This class is for those that remember
    something: what they remember is saved with the run, and one object that serves several extensions is asked once per
    iteration and gives them all the same answer (GT-2).

    A subclass overrides :meth:`__call__` and, if it has a memory, the other three. It needs a ``repr`` that shows its
    settings: ranks compare it. One whose answer follows from the counters alone says so in :attr:`decided`, which
    spares the ranks a message.
    """

    decided: Decided = "rank0"
    """Where the answer comes from; see :data:`Decided`.

    A trigger that asks others has them in a list ``parts``. The trainer may put stand-ins there while it runs, so that
    an object used in several places is asked once per iteration; the trigger has to ask those it finds in the list.
    """

    asked_elsewhere = False
    """Whether somebody asks it besides the trainer: an extension that was given it as its own inner trigger."""
    _asked_in: Any = None  # the observation of the iteration of the last question; every iteration has a new one
    _answer = False

    def __call__(self, trainer: TrainerView) -> bool:
        """Whether the extension runs now. Called once per iteration, after the update."""
        raise NotImplementedError(f"{type(self).__name__} must say when it fires: override __call__.")

    def ask_once(self, trainer: TrainerView) -> bool:
        """The answer in this iteration, for those who share one object: a second question would find nothing new."""
        if trainer.observation is not self._asked_in:
            self._answer = self(trainer)
            self._asked_in = trainer.observation
        return self._answer

    def initialize(self, trainer: TrainerView) -> None:
        """Called before the first update of a process, after a saved state was loaded."""

    def state_dict(self) -> dict[str, Any]:
        """The memory, small and made of JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved memory. Settings come from the constructor, never from a file."""

    def __or__(self, other: Any) -> Trigger:
        from ostinato.loop.triggers.combined import AnyTrigger  # imports this module

        return AnyTrigger([self, other])

    def __and__(self, other: Any) -> Trigger:
        from ostinato.loop.triggers.combined import AllTrigger  # imports this module

        return AllTrigger([self, other])


def from_counters(function: Any) -> Any:
    """Mark a plain function as one of the counters alone: all ranks get the same answer, so none has to ask.

    ::

        @from_counters
        def at_squares(trainer):
            return math.isqrt(trainer.updater.state.iteration) ** 2 == trainer.updater.state.iteration
    """
    function.decided = "counters"
    return function


def decided_by(trigger: Any) -> Decided:
    """Where the answer of a trigger or of a plain callable comes from; ``rank0`` unless it says otherwise."""
    return getattr(trigger, "decided", "rank0")


def decided_together(parts: Iterable[Any]) -> Decided:
    """Where an answer comes from that is made of several: from the counters only if all of them do."""
    kinds = {decided_by(part) for part in parts}
    return "ranks" if "ranks" in kinds else "rank0" if "rank0" in kinds else "counters"


@from_counters
def never(trainer: TrainerView) -> bool:
    """The trigger that does not fire."""
    return False
