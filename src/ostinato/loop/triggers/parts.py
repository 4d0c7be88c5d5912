"""Triggers inside triggers: asking, saving and showing the parts that another trigger is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ostinato.dist import Alone, Group
from ostinato.loop.triggers.trigger import decided_by

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView

_ALONE = Alone()


def group_of(trainer: Any) -> Group:
    """The ranks that train together; a trainer that knows of none is alone."""
    return getattr(trainer, "group", None) or _ALONE


def ask_together(part: Any, trainer: TrainerView) -> bool:
    """The answer of a trigger or callable, the same on every rank.

    For use inside a trigger that every rank asks in every iteration (``decided`` is ``ranks``): where ranks could
    differ, the answer of rank 0 is sent to all.
    """
    answer = bool(part(trainer))
    if decided_by(part) != "rank0":
        return answer
    group = group_of(trainer)
    return group.broadcast(answer) if group.size > 1 else answer


def initialize_part(part: Any, trainer: TrainerView) -> None:
    """Initialize a part, if it can be."""
    initialize = getattr(part, "initialize", None)
    if callable(initialize):
        initialize(trainer)


def part_state(part: Any) -> Any:
    """The memory of a part; ``None`` for a plain callable."""
    save = getattr(part, "state_dict", None)
    return save() if callable(save) else None


def load_part(part: Any, state: Mapping[str, Any] | None) -> None:
    """Give a part its memory back; a part that the saved state does not know starts fresh."""
    load = getattr(part, "load_state_dict", None)
    if callable(load) and state is not None:
        load(state)


def shown(part: Any) -> str:
    """A trigger or callable as text that is the same in every process, so without addresses: ranks compare it."""
    name = getattr(part, "__qualname__", None)
    if name is not None:
        return str(name)
    return repr(part) if type(part).__repr__ is not object.__repr__ else type(part).__qualname__
