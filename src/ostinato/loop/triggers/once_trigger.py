"""Fires once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ostinato.loop.triggers.trigger import Trigger

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView


class OnceTrigger(Trigger):
    """Fires at the first call in the whole history of a run.

    :param call_on_resume: fire also at the first call after each resume.
    """

    decided = "counters"

    def __init__(self, call_on_resume: bool = False) -> None:
        self.call_on_resume = call_on_resume
        self._fired = False

    @property
    def finished(self) -> bool:
        """Whether it will not fire again in this process."""
        return self._fired

    def __call__(self, trainer: TrainerView) -> bool:
        fires = not self._fired
        self._fired = True
        return fires

    def state_dict(self) -> dict[str, Any]:
        """``fired``."""
        return {"fired": self._fired}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remember that it has fired, unless it is to fire after every resume."""
        self._fired = bool(state.get("fired", False)) and not self.call_on_resume

    def __repr__(self) -> str:
        return f"{type(self).__name__}(call_on_resume={self.call_on_resume})"
