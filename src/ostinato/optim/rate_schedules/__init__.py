"""Learning rates as functions of the number of updates: factor, multifactor, poly and cosine, each with a warm-up."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.optim.argument_checks import require_mapping, require_text
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
    :raises ArgumentTypeError: an argument is unknown to it, or one that it needs is missing.
    """
    cls = _CLASSES.get(require_text("The name of a schedule", name).lower())
    if cls is None:
        raise ArgumentValueError(f"There is no rate schedule called {name!r}.", advice=did_you_mean(name, _CLASSES))
    known = set(inspect.signature(cls).parameters)
    for keyword in arguments:
        if keyword not in known:
            raise ArgumentTypeError(
                f"The schedule {cls.name} has no argument {keyword!r}.", advice=did_you_mean(keyword, known)
            )
    missing = [
        each.name
        for each in inspect.signature(cls).parameters.values()
        if each.default is each.empty and each.name not in arguments
    ]
    if missing:
        raise ArgumentTypeError(
            f"The schedule {cls.name} needs {' and '.join(missing)}.", advice=f"Write {missing[0]}=... ."
        )
    return cls(**arguments)


def schedule_from_state(state: Mapping[str, Any]) -> RateSchedule:
    """Make the schedule that :meth:`RateSchedule.state_dict` described.

    :raises ArgumentValueError: the schedule or the format is not known.
    """
    require_mapping("The state of a schedule", state, "Give what its state_dict() gave.")
    arguments = require_mapping("The arguments of a schedule", state.get("arguments"), "Give a whole state.")
    made = create_schedule(str(state.get("name")), **arguments)
    made.load_state_dict(state)
    return made
