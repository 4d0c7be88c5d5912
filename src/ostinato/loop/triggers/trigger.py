"""The base class of triggers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView


class Trigger:
    """Answers "now?" once per iteration. Says *when*; extensions say *what*.

    Any callable that takes the trainer and returns a boolean is a valid trigger. This class is for those that remember
    something: what they remember is saved with the run, and one object that serves several extensions is asked once per
    iteration and gives them all the same answer (GT-2).

    A subclass overrides :meth:`__call__` and, if it has a memory, the other three. It needs a ``repr`` that shows its
    settings: ranks compare it.
    """

    def __call__(self, trainer: TrainerView) -> bool:
        """Whether the extension runs now. Called once per iteration, after the update."""
        raise NotImplementedError(f"{type(self).__name__} must say when it fires: override __call__.")

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


def never(trainer: TrainerView) -> bool:
    """The trigger that does not fire."""
    return False
