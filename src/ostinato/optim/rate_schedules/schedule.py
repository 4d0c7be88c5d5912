"""What rate schedules have in common: a base rate, a warm-up, and a rate that depends on the update number alone."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from ostinato.errors import ArgumentValueError, ContractError
from ostinato.optim.argument_checks import require_finite, require_mapping, require_number

FORMAT = 1

WarmUpMode = Literal["linear", "constant"]


class RateSchedule(ABC):
    """A learning rate as a pure function of n, the number of updates that the optimizer has counted.

    During the warm-up, for n < ``warmup_steps``, the rate rises in a straight line from ``warmup_begin_lr`` to the base
    rate (``"linear"``) or stays at ``warmup_begin_lr`` (``"constant"``). The first update asks for n = 1. Nothing is
    remembered between calls, so asking for an earlier n gives the earlier rate.

    :param base_lr: the rate that the schedule starts from after the warm-up. It can be assigned later, and then holds
        for the warm-up's target too.
    :param warmup_steps: the length of the warm-up in updates; 0 for none.
    :param warmup_begin_lr: the rate at n = 0, at most ``base_lr``.
    :param warmup_mode: ``"linear"`` or ``"constant"``.
    :raises ArgumentValueError: a value is out of range.
    :raises ContractError: a number of updates is not an integer. It is an AssertionError too.
    """

    name: ClassVar[str]
    """The name by which :func:`ostinato.optim.rate_schedules.create_schedule` knows the class."""

    def __init__(
        self,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: WarmUpMode = "linear",
    ) -> None:
        require_integer("warmup_steps", warmup_steps)
        if warmup_steps < 0:
            raise ArgumentValueError(
                f"warmup_steps is {warmup_steps}, and a warm-up cannot be shorter than 0 updates.",
                advice="Use 0 for no warm-up.",
            )
        if warmup_mode not in ("linear", "constant"):
            raise ArgumentValueError(
                f"There is no warm-up called {warmup_mode!r}.", advice="Use 'linear' or 'constant'."
            )
        self.warmup_steps = warmup_steps
        self.warmup_begin_lr = require_finite("warmup_begin_lr", warmup_begin_lr)
        self.warmup_mode = warmup_mode
        self.base_lr = base_lr

    @property
    def base_lr(self) -> float:
        """The rate that the schedule starts from after the warm-up, and that a linear warm-up aims at."""
        return self._base_lr

    @base_lr.setter
    def base_lr(self, value: float) -> None:
        value = require_number("base_lr", value)
        if not self.warmup_begin_lr <= value < math.inf:
            raise ArgumentValueError(
                f"The base rate {value} is lower than the rate {self.warmup_begin_lr} that the warm-up begins with."
                if value < self.warmup_begin_lr
                else f"The base rate is {value}, which is not a rate.",
                advice="Give a base_lr of at least warmup_begin_lr.",
                base_lr=value,
                warmup_begin_lr=self.warmup_begin_lr,
            )
        self._base_lr = float(value)

    def __call__(self, num_update: int) -> float:
        """Give the rate of update ``num_update``, counted from 1."""
        if require_finite("num_update", num_update) < 0:
            raise ArgumentValueError(
                f"The rate of update {num_update} was asked for.", advice="Updates are counted from 1."
            )
        if num_update < self.warmup_steps:
            if self.warmup_mode == "constant":
                return self.warmup_begin_lr
            return self.warmup_begin_lr + (self.base_lr - self.warmup_begin_lr) * num_update / self.warmup_steps
        return self._after_warm_up(num_update)

    @abstractmethod
    def _after_warm_up(self, num_update: int) -> float:
        """Give the rate for an update that the warm-up does not cover."""

    @abstractmethod
    def _own_arguments(self) -> dict[str, Any]:
        """Give the arguments of the class itself, as its constructor takes them."""

    def arguments(self) -> dict[str, Any]:
        """Give the arguments that make an equal schedule, as plain values."""
        return {
            **self._own_arguments(),
            "base_lr": self.base_lr,
            "warmup_steps": self.warmup_steps,
            "warmup_begin_lr": self.warmup_begin_lr,
            "warmup_mode": self.warmup_mode,
        }

    def state_dict(self) -> dict[str, Any]:
        """Give the schedule as plain values: ``{"format": 1, "name": …, "arguments": {…}}``."""
        return {"format": FORMAT, "name": self.name, "arguments": self.arguments()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the schedule that was saved.

        :raises ArgumentValueError: the state is of another kind of schedule, or of an unknown format. Nothing is
            changed then.
        """
        require_mapping("The state of a schedule", state, "Give what its state_dict() gave.")
        if state.get("format") != FORMAT or state.get("name") != self.name:
            raise ArgumentValueError(
                f"A {self.name} schedule cannot continue from a saved {state.get('name')!r} schedule of format "
                f"{state.get('format')!r}.",
                advice="Build the same kind of schedule before loading, or go on without loading it.",
            )
        # Made first and taken over whole, so that values which are refused change nothing.
        try:
            self.__dict__.update(type(self)(**state["arguments"]).__dict__)
        except (KeyError, TypeError) as error:
            raise ArgumentValueError(
                f"The state of a {self.name} schedule is damaged: {error}.", advice="Give what its state_dict() gave."
            ) from error

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.arguments().items())
        return f"{type(self).__name__}({inside})"


def require_integer(name: str, value: object) -> None:
    """Refuse anything but an int where updates are counted.

    :raises ContractError: ``value`` is no int.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise ContractError(
            f"{name} is {value!r}, and updates are counted in whole numbers.", advice=f"Give {name} as an int."
        )


def require_room_after_warm_up(max_update: int, warmup_steps: int) -> None:
    """Refuse a schedule that ends before its warm-up does.

    :raises ContractError: ``max_update`` is no int.
    :raises ArgumentValueError: ``max_update`` is below 1, or not beyond the warm-up.
    """
    require_integer("max_update", max_update)
    if max_update < 1:
        raise ArgumentValueError(
            f"max_update is {max_update}, and a schedule lasts at least 1 update.", advice="Give a max_update above 0."
        )
    if warmup_steps >= max_update:
        raise ArgumentValueError(
            f"The warm-up of {warmup_steps} updates leaves nothing of a schedule that ends at update {max_update}.",
            advice="Give a max_update beyond warmup_steps.",
            warmup_steps=warmup_steps,
            max_update=max_update,
        )
