"""Triggers made of triggers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.loop.triggers.parts import ask_together, initialize_part, load_part, part_state, shown
from ostinato.loop.triggers.trigger import Trigger, decided_together

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView, TriggerFunction


class _Combined(Trigger):
    """Asks all its parts every time, so that each keeps its own count, and then decides.

    :raises ArgumentTypeError: when a part cannot be called.
    :raises ArgumentValueError: when there is none.
    """

    _decide: Callable[[Iterable[bool]], bool]

    def __init__(self, parts: Sequence[TriggerFunction]) -> None:
        self.parts = list(parts)
        if not self.parts:
            raise ArgumentValueError(
                f"{type(self).__name__} of no parts would say the same for ever.",
                advice="Give it at least one trigger.",
            )
        for part in self.parts:
            if not callable(part):
                raise ArgumentTypeError(
                    f"{part!r} is not a trigger and cannot be combined with one.",
                    advice="Combine Trigger objects and callables; get_trigger makes one of a tuple or a text.",
                    value=part,
                )
        self.decided = decided_together(self.parts)

    def __call__(self, trainer: TrainerView) -> bool:
        if self.decided == "ranks":  # some part talks with the other ranks, so all of us are here
            answers = [ask_together(part, trainer) for part in self.parts]
        else:
            answers = [part(trainer) for part in self.parts]
        return type(self)._decide(answers)

    def initialize(self, trainer: TrainerView) -> None:
        """Initialize the parts."""
        for part in self.parts:
            initialize_part(part, trainer)

    def state_dict(self) -> dict[str, Any]:
        """``parts``: their states, in order; ``None`` for a plain callable."""
        return {"parts": [part_state(part) for part in self.parts]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the parts in order; parts that the saved state does not know start fresh."""
        for part, saved in zip(self.parts, state.get("parts", []), strict=False):
            load_part(part, saved)

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{', '.join(shown(part) for part in self.parts)}])"


class AnyTrigger(_Combined):
    """Fires when at least one part does; ``a | b``."""

    _decide = any


class AllTrigger(_Combined):
    """Fires when all parts do; ``a & b``."""

    _decide = all
