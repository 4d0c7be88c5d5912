"""From what a caller writes to a trigger."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.loop.protocols import TriggerFunction
from ostinato.loop.triggers.combined import AnyTrigger
from ostinato.loop.triggers.interval_trigger import IntervalTrigger
from ostinato.loop.triggers.limit_trigger import LimitTrigger
from ostinato.loop.triggers.time_text import parse_time
from ostinato.loop.triggers.time_trigger import TimeTrigger
from ostinato.loop.triggers.trigger import Trigger, never


def get_trigger(argument: Any, limit: LimitTrigger | None = None) -> TriggerFunction:
    """The trigger that an argument stands for (GT-1).

    ``None``: never. A callable: itself. ``(10, "iteration")``: an :class:`IntervalTrigger`. A time text such as
    ``"1000it"``, ``"0.5ep"`` or ``"30min"``: an :class:`IntervalTrigger` or a :class:`TimeTrigger`.

    :param limit: the end of the run, where it is known; ``"0.1dur"`` is a fraction of it.
    :raises ArgumentTypeError: for anything else.
    :raises ArgumentValueError: for a bad text, unit or number.
    """
    if argument is None:
        return never
    if callable(argument):
        return _checked_callable(argument)
    if isinstance(argument, str):
        return _from_text(argument, limit)
    if isinstance(argument, tuple | list) and len(argument) == 2:
        return IntervalTrigger(argument[0], argument[1])
    raise ArgumentTypeError(
        f"{argument!r} is not a trigger.",
        advice="Give a number and a unit such as (10, 'iteration'), a text such as '10it', a callable, or None.",
        value=argument,
    )


def _from_text(text: str, limit: LimitTrigger | None) -> TriggerFunction:
    number, unit = parse_time(text)
    if unit == "dur":
        if limit is None:
            raise ArgumentValueError(
                f"{text!r} is a fraction of the training, and the end of this training is not known here.",
                advice="Trainer.extend(trigger=...) knows it if the trainer has a limit such as (1000, 'iteration'). "
                "Anywhere else write the period in it or ep.",
                value=text,
            )
        number, unit = number * limit.limit, limit.unit
        if unit not in ("epoch", "second"):
            number = math.ceil(number)
    return TimeTrigger(number) if unit == "second" else IntervalTrigger(number, unit)


def get_stop_trigger(argument: Any) -> TriggerFunction:
    """The stop trigger that an argument stands for (ST-1).

    ``(1000, "iteration")`` or a time text: a :class:`LimitTrigger`. A callable: itself. ``None``: no limit. A list of
    such values: stops when any of them says so; all are asked every time.

    :raises ArgumentTypeError: for anything else.
    :raises ArgumentValueError: for a bad text, unit or number.
    """
    if argument is None:
        return never
    if callable(argument):
        return _checked_callable(argument)
    if isinstance(argument, str):
        return LimitTrigger(*parse_time(argument))
    if isinstance(argument, tuple | list) and len(argument) == 2 and _is_number(argument[0]):
        return LimitTrigger(argument[0], argument[1])
    if isinstance(argument, list) and argument:
        return AnyTrigger([get_stop_trigger(part) for part in argument])
    raise ArgumentTypeError(
        f"{argument!r} does not say when to stop.",
        advice="Give (1000, 'iteration'), a text such as '5ep', a trigger, a list of these, or None for no limit.",
        value=argument,
    )


def _checked_callable(argument: Any) -> TriggerFunction:
    if isinstance(argument, type) and issubclass(argument, Trigger):
        raise ArgumentTypeError(
            f"{argument.__name__} is a class of triggers, not one of them.",
            advice=f"Make one: {argument.__name__}(...).",
            value=argument,
        )
    return argument


def _is_number(value: Any) -> bool:
    return isinstance(value, Real)  # those of numpy too
