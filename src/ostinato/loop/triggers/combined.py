"""Triggers made of triggers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ostinato.loop.triggers.trigger import Trigger, decided_together

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView, TriggerFunction


class _Combined(Trigger):
    """Asks all its parts every time, so that each keeps its own count, and then decides."""

    _decide: Callable[[Iterable[bool]], bool]

    def __init__(self, parts: Sequence[TriggerFunction]) -> None:
        self.parts = list(parts)
        self.decided = decided_together(self.parts)

    def __call__(self, trainer: TrainerView) -> bool:
        answers = [part(trainer) for part in self.parts]
        return type(self)._decide(answers)

    def initialize(self, trainer: TrainerView) -> None:
        """Initialize the parts."""
        for part in self.parts:
            if isinstance(part, Trigger):
                part.initialize(trainer)

    def state_dict(self) -> dict[str, Any]:
        """``parts``: their states, in order; ``None`` for a plain callable."""
        return {"parts": [part.state_dict() if isinstance(part, Trigger) else None for part in self.parts]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the parts in order; parts that the saved state does not know start fresh."""
        for part, saved in zip(self.parts, state.get("parts", []), strict=False):
            if isinstance(part, Trigger) and saved is not None:
                part.load_state_dict(saved)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.parts!r})"


class AnyTrigger(_Combined):
    """Fires when at least one part does; ``a | b``."""

    _decide = any


class AllTrigger(_Combined):
    """Fires when all parts do; ``a & b``."""

    _decide = all
