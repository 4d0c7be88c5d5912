"""Seven curves along which a setting of an optimizer can move; ``t`` is the number of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ostinato.errors import ArgumentValueError
from ostinato.extensions.shift import Shift, check_count, check_not_negative, check_pair, scaled
from ostinato.loop.triggers.units import check_real


class ExponentialShift(Shift):
    """``init * rate ** t``.

    :param rate: the factor of each call, 0 or more.

    For ``attr``, ``init``, ``target`` and ``optimizer`` see :class:`Shift`, here and in the other six.
    """

    def __init__(
        self,
        attr: str,
        rate: float,
        init: float | None = None,
        target: float | None = None,
        optimizer: Any = None,
    ) -> None:
        super().__init__(attr, init=init, target=target, optimizer=optimizer)
        self.rate = check_not_negative(rate, "rate", type(self).__name__)

    def value_at(self, calls: int, start: float) -> float:
        """See :meth:`Shift.value_at`."""
        return scaled(start, self.rate, calls)


class InverseShift(Shift):
    """``init * (1 + gamma * t) ** -power``.

    :param gamma: how fast, 0 or more.
    :param power: any number; a negative one lets the value grow.
    """

    def __init__(
        self,
        attr: str,
        gamma: float,
        power: float,
        init: float | None = None,
        target: float | None = None,
        optimizer: Any = None,
    ) -> None:
        super().__init__(attr, init=init, target=target, optimizer=optimizer)
        self.gamma = check_not_negative(gamma, "gamma", type(self).__name__)
        self.power = check_real(power, "power", type(self).__name__)

    def value_at(self, calls: int, start: float) -> float:
        """See :meth:`Shift.value_at`."""
        return scaled(start, 1 + self.gamma * calls, -self.power)


class LinearShift(Shift):
    """The first value until the first time, then straight to the second value, reached at the second time.

    :param value_range: the two values.
    :param time_range: the two times in calls, 0 or more, the first not after the second.
    """

    def __init__(
        self, attr: str, value_range: Sequence[float], time_range: Sequence[int], optimizer: Any = None
    ) -> None:
        super().__init__(attr, optimizer=optimizer)
        owner = type(self).__name__
        first, second = check_pair(value_range, "value_range", owner)
        self.value_range = check_real(first, "value_range", owner), check_real(second, "value_range", owner)
        begin, end = check_pair(time_range, "time_range", owner)
        self.time_range = (
            check_count(begin, "time_range", owner, minimum=0),
            check_count(end, "time_range", owner, minimum=0),
        )
        if begin > end:
            raise ArgumentValueError(
                f"{owner}: time_range is {begin} to {end}, which goes back.",
                advice="Put the earlier time first.",
                name="time_range",
                value=time_range,
            )

    def value_at(self, calls: int, start: float) -> float:
        """See :meth:`Shift.value_at`."""
        (first, second), (begin, end) = self.value_range, self.time_range
        if calls <= begin:
            return first
        if calls >= end:
            return second
        part = (calls - begin) / (end - begin)
        return first + (second - first) * part


class MultistepShift(Shift):
    """``init * gamma ** (milestones reached)``; a call reaches one milestone at most.

    :param gamma: the factor of each milestone.
    :param step_value: a milestone, or a list of them in any order: numbers of calls, 0 or more.
    """

    def __init__(
        self,
        attr: str,
        gamma: float,
        step_value: int | Sequence[int],
        init: float | None = None,
        optimizer: Any = None,
    ) -> None:
        super().__init__(attr, init=init, optimizer=optimizer)
        owner = type(self).__name__
        self.gamma = check_real(gamma, "gamma", owner)
        listed = step_value if isinstance(step_value, Sequence) and not isinstance(step_value, str) else [step_value]
        if not listed:
            raise ArgumentValueError(
                f"{owner}: step_value is empty.", advice="Name at least one milestone.", name="step_value"
            )
        self.step_value = sorted(check_count(step, "step_value", owner, minimum=0) for step in listed)
        self._reached_at: list[int] = []  # the call that reaches each milestone: one after the one before at least
        last = 0
        for step in self.step_value:
            last = max(step, last + 1)
            self._reached_at.append(last)

    def value_at(self, calls: int, start: float) -> float:
        """See :meth:`Shift.value_at`."""
        return scaled(start, self.gamma, sum(reached <= calls for reached in self._reached_at))


class PolynomialShift(Shift):
    """``init * max(1 - t / max_count, 0) ** rate``.

    With a negative rate the value grows; it stays where it is one call before ``max_count``, for there it would be
    infinite.

    :param rate: the exponent.
    :param max_count: the number of calls after which the value is 0.
    """

    def __init__(
        self,
        attr: str,
        rate: float,
        max_count: int,
        init: float | None = None,
        target: float | None = None,
        optimizer: Any = None,
    ) -> None:
        super().__init__(attr, init=init, target=target, optimizer=optimizer)
        self.rate = check_real(rate, "rate", type(self).__name__)
        self.max_count = check_count(max_count, "max_count", type(self).__name__)

    def value_at(self, calls: int, start: float) -> float:
        """See :meth:`Shift.value_at`."""
        last = self.max_count - 1 if self.rate < 0 else self.max_count
        return scaled(start, 1 - min(calls, last) / self.max_count, self.rate)


class StepShift(Shift):
    """``init * gamma ** floor(t / step)``.

    :param gamma: the factor of each step.
    :param step: calls from one step to the next, 1 or more.
    """

    def __init__(
        self,
        attr: str,
        gamma: float,
        step: int,
        init: float | None = None,
        target: float | None = None,
        optimizer: Any = None,
    ) -> None:
        super().__init__(attr, init=init, target=target, optimizer=optimizer)
        self.gamma = check_real(gamma, "gamma", type(self).__name__)
        self.step = check_count(step, "step", type(self).__name__)

    def value_at(self, calls: int, start: float) -> float:
        """See :meth:`Shift.value_at`."""
        return scaled(start, self.gamma, calls // self.step)


class WarmupShift(Shift):
    """Straight from ``warmup_start`` to ``init`` within ``warmup_iter`` calls.

    :param warmup_start: the value at the start; ``None``: the one that is found there.
    :param warmup_iter: the number of calls after which ``init`` is reached, 1 or more.
    :param init: the value that is reached; ``None``: the one that is found there at the start.
    """

    def __init__(
        self,
        attr: str,
        warmup_start: float | None,
        warmup_iter: int,
        init: float | None = None,
        optimizer: Any = None,
    ) -> None:
        super().__init__(attr, optimizer=optimizer)
        owner = type(self).__name__
        self.warmup_start = None if warmup_start is None else check_real(warmup_start, "warmup_start", owner)
        self.warmup_iter = check_count(warmup_iter, "warmup_iter", owner)
        self.end = None if init is None else check_real(init, "init", owner)

    def value_at(self, calls: int, start: float) -> float:
        """See :meth:`Shift.value_at`."""
        begin = start if self.warmup_start is None else self.warmup_start
        end = start if self.end is None else self.end
        if calls >= self.warmup_iter:
            return end
        return begin + (end - begin) * calls / self.warmup_iter
