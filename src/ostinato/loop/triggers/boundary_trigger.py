"""What all triggers have in common that fire when an index passes a boundary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ostinato.errors import ArgumentValueError
from ostinato.loop.triggers.trigger import Trigger
from ostinato.loop.triggers.units import Index

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView

_NO_BASELINE = math.inf


class BoundaryTrigger(Trigger):
    """Fires when a boundary lies after the index of the last call (the *base line*) and not after the present one.

    So: one firing per call, however many boundaries were passed; none for an index that stands still; none for an index
    that went back, which only becomes the new base line (IT-2). Used alone, the first call takes its index as base line
    and is false (IT-3); in a trainer :meth:`initialize` has set the base line before the first update (IT-5).

    The next boundary is kept, so the usual call is a few comparisons of numbers.

    :param counter: the attribute of ``trainer.updater.state`` that is the index; a subclass that looks elsewhere
        overrides :meth:`read_index` and, unless that too is equal on all ranks, :attr:`decided`. All subclasses
        override :meth:`next_boundary`.
    """

    decided = "counters"

    def __init__(self, counter: str) -> None:
        self._counter = counter
        # "No base line" is infinity: every comparison below then takes the long way without a test for it.
        self._baseline: Index = _NO_BASELINE
        self._due: Index = _NO_BASELINE
        self._stride: Index = 0  # from any boundary to the next one; 0 where that is not always the same

    def next_boundary(self, baseline: Index) -> Index:
        """The first boundary after ``baseline``, infinity if there is none."""
        raise NotImplementedError(f"{type(self).__name__} must name its boundaries: override next_boundary.")

    def read_index(self, trainer: TrainerView) -> Index:
        """The present index."""
        return getattr(trainer.updater.state, self._counter)

    def __call__(self, trainer: TrainerView) -> bool:
        # Every trigger passes here in every iteration, so read_index stands in line instead of a call to it, and the
        # two usual answers, "not yet" and "now, exactly on a boundary", are found without a further call.
        index = getattr(trainer.updater.state, self._counter)
        if index < self._due:
            if self._baseline <= index:
                self._baseline = index
                return False
        elif index == self._due and self._stride:
            self._baseline = index
            self._due = index + self._stride
            return True
        return self._move_to(index)

    def _move_to(self, index: Index) -> bool:
        """Whether a boundary was passed on the way to ``index``, which becomes the base line."""
        fires = index >= self._due and self._baseline != _NO_BASELINE
        self._baseline = index
        self._due = self.next_boundary(index)
        return fires

    def initialize(self, trainer: TrainerView) -> None:
        """Take the present index as base line, unless a saved one is there that is not later."""
        index = self.read_index(trainer)
        self._set_baseline(min(self._baseline, index))

    def _set_baseline(self, index: Index) -> None:
        self._baseline = index
        self._due = self.next_boundary(index)

    def state_dict(self) -> dict[str, Any]:
        """``baseline``: the index of the last call; a fraction as text such as ``"7/10"``; ``None``: never called."""
        if self._baseline == _NO_BASELINE:
            return {"baseline": None}
        if isinstance(self._baseline, Fraction) and self._baseline.denominator != 1:
            return {"baseline": str(self._baseline)}
        if isinstance(self._baseline, float):
            return {"baseline": self._baseline}
        return {"baseline": int(self._baseline)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a saved base line; without one, :meth:`initialize` takes the present index."""
        baseline = state.get("baseline")
        if baseline is None:
            self._baseline = self._due = _NO_BASELINE
            return
        self._set_baseline(_saved_index(baseline))


def _saved_index(value: Any) -> Index:
    if isinstance(value, str) and len(value) <= 64:
        numerator, slash, denominator = value.partition("/")
        if slash and numerator.isdecimal() and denominator.isdecimal() and int(denominator) > 0:
            return Fraction(int(numerator), int(denominator))
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return value
    raise ArgumentValueError(
        f"The saved base line of a trigger is {value!r}, not a number from 0 up.",
        advice="The saved state is damaged or of another kind; load another one.",
        value=value,
    )
