"""What the triggers have in common whose boundaries are numbers of a counter of the updater."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ostinato.loop.triggers.boundary_trigger import BoundaryTrigger
from ostinato.loop.triggers.units import check_counted, counter_name

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView


class CountedBoundaryTrigger(BoundaryTrigger):
    """A :class:`BoundaryTrigger` over iterations, epochs, samples or tokens.

    :param unit: one of :data:`~ostinato.loop.triggers.units.COUNTED_UNITS`.
    :param fractional: a boundary lies within an epoch.
    """

    def __init__(self, unit: str, *, fractional: bool) -> None:
        super().__init__(counter_name(unit, fractional))
        self.unit = unit

    def initialize(self, trainer: TrainerView) -> None:
        """See :meth:`BoundaryTrigger.initialize`.

        :raises StateError: when the updater does not count in this unit, or the fraction of an epoch is unknown.
        """
        check_counted(trainer, self.unit, repr(self))
        super().initialize(trainer)

    def state_dict(self) -> dict[str, Any]:
        """``unit`` and ``baseline``."""
        return {"unit": self.unit, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the saved base line if it was counted in the same unit; the boundaries are the constructor's."""
        super().load_state_dict(state if state.get("unit") == self.unit else {})
