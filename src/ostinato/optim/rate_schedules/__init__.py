"""Learning rates as functions of the number of updates: factor, multifactor, poly and cosine, each with a warm-up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ostinato.errors import ArgumentValueError
from ostinato.optim.nearest_names import did_you_mean
from ostinato.optim.rate_schedules.cosine import CosineSchedule
from ostinato.optim.rate_schedules.factor import FactorSchedule
from ostinato.optim.rate_schedules.multifactor import MultiFactorSchedule
from ostinato.optim.rate_schedules.poly import PolySchedule
from ostinato.optim.rate_schedules.schedule import RateSchedule

__all__ = [
    "CosineSchedule",
    "FactorSchedule",
    "MultiFactorSchedule",
    "PolySchedule",
    "RateSchedule",
    "create_schedule",
    "schedule_from_state",
]

_CLASSES: dict[str, type[RateSchedule]] = {
    cls.name: cls for cls in (CosineSchedule, FactorSchedule, MultiFactorSchedule, PolySchedule)
}


def create_schedule(name: str, **arguments: Any) -> RateSchedule:
    """Make a schedule by its name, whatever its case.

    :raises ArgumentValueError: there is no such schedule.
    """
    cls = _CLASSES.get(name.lower())
    if cls is None:
        raise ArgumentValueError(f"There is no rate schedule called {name!r}.", advice=did_you_mean(name, _CLASSES))
    return cls(**arguments)


def schedule_from_state(state: Mapping[str, Any]) -> RateSchedule:
    """Make the schedule that :meth:`RateSchedule.state_dict` described.

    :raises ArgumentValueError: the schedule or the format is not known.
    """
    made = create_schedule(str(state.get("name")), **state.get("arguments", {}))
    made.load_state_dict(state)
    return made
