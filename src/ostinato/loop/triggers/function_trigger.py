"""Asks a function, but only now and then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ostinato.errors import ArgumentTypeError
from ostinato.loop.triggers.get_trigger import get_trigger
from ostinato.loop.triggers.parts import ask_together, group_of, initialize_part, load_part, part_state, shown
from ostinato.loop.triggers.trigger import Trigger, decided_by, decided_together

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView


class FunctionTrigger(Trigger):
    """Fires when an inner trigger does and a function then says yes; otherwise the function is not asked.

    A function that should see the trainer is a trigger by itself and combines with others by ``&``.

    :param fn: called with ``args`` and ``kwargs``; its answer counts as a boolean. With several ranks that of rank 0
        counts, unless the function is marked by :func:`from_counters`.
    :param trigger: when it is asked, as :func:`get_trigger` reads it.
    :raises ArgumentTypeError: when ``fn`` cannot be called, or another argument has the wrong type.
    :raises ArgumentValueError: for a bad text, unit or number of ``trigger``.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        trigger: Any = (1, "iteration"),
    ) -> None:
        owner = type(self).__name__
        if not callable(fn):
            raise ArgumentTypeError(f"{owner}: fn must be a function, not {fn!r}.", name="fn", value=fn)
        if args is not None and (isinstance(args, str | bytes) or not isinstance(args, Sequence)):
            raise ArgumentTypeError(f"{owner}: args must be a list or a tuple, not {args!r}.", name="args", value=args)
        if kwargs is not None and not isinstance(kwargs, Mapping):
            raise ArgumentTypeError(f"{owner}: kwargs must be a mapping, not {kwargs!r}.", name="kwargs", value=kwargs)
        self._fn = fn
        self._args = tuple(args or ())
        self._kwargs = dict(kwargs or {})
        self.parts = [get_trigger(trigger)]
        # Where ranks could differ they agree right here, and only when the function is asked.
        self.decided = "counters" if decided_together([fn, *self.parts]) == "counters" else "ranks"

    def __call__(self, trainer: TrainerView) -> bool:
        if not ask_together(self.parts[0], trainer):
            return False
        group = group_of(trainer)
        if group.size == 1 or decided_by(self._fn) == "counters":
            return bool(self._fn(*self._args, **self._kwargs))
        # All ranks are here, so rank 0 may ask alone and tell the others.
        return group.broadcast(bool(self._fn(*self._args, **self._kwargs)) if group.rank == 0 else False)

    def initialize(self, trainer: TrainerView) -> None:
        """Initialize the inner trigger."""
        initialize_part(self.parts[0], trainer)

    def state_dict(self) -> dict[str, Any]:
        """``trigger``: the state of the inner trigger."""
        return {"trigger": part_state(self.parts[0])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the inner trigger."""
        load_part(self.parts[0], state.get("trigger"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown(self._fn)}, {shown(self.parts[0])})"
