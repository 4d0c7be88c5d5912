"""What the extensions have in common that move a setting of an optimizer along a curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.extensions.observed_entries import check_key
from ostinato.extensions.observed_optimizers import find_optimizers
from ostinato.extensions.saved_format import check_format
from ostinato.loop import Extension, TrainerView
from ostinato.loop.triggers.units import check_real

STATE_FORMAT = 1


class Shift(Extension):
    """Sets an attribute to a function of the number of its calls, and of the value that it had at the start.

    Of a torch optimizer it is a setting of the groups of parameters, such as ``lr``: each group starts from its own
    value. Of any other object it is an attribute. The value for the first update is set before it.

    The start value is part of the saved state: a resumed run takes it from there and not from the optimizer, where it
    has moved on. All other settings are the constructor's, so a change of them acts at once.

    Subclasses override :meth:`value_at`.

    :param attr: the name of the setting.
    :param init: the value at the start; ``None``: the one that is found there.
    :param target: a value that is not passed on the way from the start; ``None``: no such value.
    :param optimizer: a torch optimizer, the name of one of the updater's, or any object that has the attribute;
        ``None``: the only one of the updater, or the one that it calls ``main``.
    :raises ArgumentTypeError: when a number is none, or the name is no text.
    :raises ArgumentValueError: for a number out of range, or an empty name.
    """

    trigger = (1, "iteration")

    def __init__(
        self, attr: str, *, init: float | None = None, target: float | None = None, optimizer: Any = None
    ) -> None:
        owner = type(self).__name__
        self.attr = check_key(attr, owner, "attr")
        self._init = None if init is None else check_real(init, "init", owner)
        self._target = None if target is None else check_real(target, "target", owner)
        self._optimizer = optimizer
        self._places: list[Any] = []  # what holds the attribute: groups of parameters, or one object
        self._starts: list[float] | None = None  # one for each place
        self._calls = 0

    def value_at(self, calls: int, start: float) -> float:
        """The value after so many calls, before ``target`` bounds it."""
        raise NotImplementedError(f"{type(self).__name__} must say where the value is: override value_at.")

    def start_from(self, found: float) -> float:
        """The value at the start, when ``found`` is what the attribute has."""
        return found if self._init is None else self._init

    def initialize(self, trainer: TrainerView) -> None:
        """Set the value for the next update.

        :raises ArgumentValueError: when the attribute or the optimizer is not there.
        :raises ArgumentTypeError: when the attribute is no number.
        :raises StateError: when the updater has no optimizers.
        """
        self._places = self._find_places(trainer)
        found = [self._read(place) for place in self._places]
        saved = self._starts
        # A model may have been regrouped since the state was saved; its groups then start where they are.
        starts = saved if saved is not None and len(saved) == len(found) else found
        self._starts = [self.start_from(start) for start in starts]
        self._set()

    def __call__(self, trainer: TrainerView) -> None:
        """Set the value for the next update."""
        self._calls += 1
        self._set()

    def state_dict(self) -> dict[str, Any]:
        """The number of calls, and the values at the start."""
        return {
            "format": STATE_FORMAT,
            "kind": type(self).__name__,
            "attr": self.attr,
            "calls": self._calls,
            "init": self._starts,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        :raises ArgumentValueError: when it has another format, or belongs to another attribute.
        """
        check_format(state, STATE_FORMAT, type(self).__name__)
        if state["attr"] != self.attr:
            raise ArgumentValueError(
                f"The saved state of {type(self).__name__} is about {state['attr']!r}; this one sets {self.attr!r}.",
                advice="Register it under another name, so that it starts fresh.",
                attr=state["attr"],
            )
        self._calls = int(state["calls"])
        self._starts = None if state["init"] is None else [float(start) for start in state["init"]]

    def _set(self) -> None:
        for place, start in zip(self._places, self._starts or [], strict=True):
            value = self.value_at(self._calls, start)
            if self._target is not None:
                value = min(value, self._target) if start <= self._target else max(value, self._target)
            self._write(place, value)

    def _find_places(self, trainer: TrainerView) -> list[Any]:
        owner = type(self).__name__
        holder = self._optimizer
        if holder is None or isinstance(holder, str):
            known = find_optimizers(trainer, holder, owner)
            if len(known) > 1 and "main" not in known:
                raise ArgumentValueError(
                    f"{owner}: there are several optimizers: {', '.join(known)}.",
                    advice="Say which one: optimizer='<name>'.",
                    name="optimizer",
                )
            holder = known["main"] if "main" in known else next(iter(known.values()))
        places = holder.param_groups if isinstance(holder, Optimizer) else [holder]
        for place in places:
            if not (self.attr in place if isinstance(place, dict) else hasattr(place, self.attr)):
                there = ", ".join(name for name in place if name != "params") if isinstance(place, dict) else ""
                raise ArgumentValueError(
                    f"{owner}: {type(holder).__name__} has no {self.attr!r}.",
                    advice=f"Its settings are: {there}." if there else "",
                    name="attr",
                    value=self.attr,
                )
        return list(places)

    def _read(self, place: Any) -> float:
        value = place[self.attr] if isinstance(place, dict) else getattr(place, self.attr)
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = float(value)  # once, before the first update
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ArgumentTypeError(
                f"{type(self).__name__}: {self.attr!r} is {value!r}, which is no number.", name="attr", value=value
            )
        return float(value)

    def _write(self, place: Any, value: float) -> None:
        if not isinstance(place, dict):
            setattr(place, self.attr, value)
        elif isinstance(place[self.attr], torch.Tensor):
            place[self.attr].fill_(value)  # a captured graph reads this very tensor
        else:
            place[self.attr] = value


def scaled(start: float, base: float, exponent: float) -> float:
    """``start * base ** exponent``; infinite where Python would give up on a number that large."""
    if start == 0:
        return 0.0
    try:
        return start * base**exponent
    except OverflowError:
        falls = (base < 0 and exponent % 2 == 1) != (start < 0)
        return -math.inf if falls else math.inf


def check_count(value: Any, name: str, owner: str, *, minimum: int = 1) -> int:
    """A whole number of calls.

    :raises ArgumentTypeError: for what is none.
    :raises ArgumentValueError: for one below ``minimum``.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"{owner}: {name} must be a whole number, not {value!r}.", name=name, value=value)
    if value < minimum:
        raise ArgumentValueError(f"{owner}: {name} must be {minimum} or more, not {value}.", name=name, value=value)
    return value


def check_pair(value: Any, name: str, owner: str) -> tuple[Any, Any]:
    """Two values in a tuple or list.

    :raises ArgumentTypeError: for anything else.
    """
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise ArgumentTypeError(f"{owner}: {name} must be two numbers, not {value!r}.", name=name, value=value)
    return value[0], value[1]


def check_not_negative(value: Any, name: str, owner: str) -> float:
    """A number from 0 up.

    :raises ArgumentTypeError: for what is no number.
    :raises ArgumentValueError: for one below 0.
    """
    number = check_real(value, name, owner)
    if number < 0:
        raise ArgumentValueError(f"{owner}: {name} must be 0 or more, not {value!r}.", name=name, value=value)
    return number
