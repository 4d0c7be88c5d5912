"""The rate times a factor, again and again after a fixed number of updates."""

from __future__ import annotations

from typing import Any, ClassVar

from ostinato.errors import ArgumentValueError
from ostinato.optim.argument_checks import require_finite, require_number
from ostinato.optim.rate_schedules.schedule import RateSchedule, WarmUpMode, require_integer


class FactorSchedule(RateSchedule):
    """``base_lr * factor**k``, where k grows by one after every ``step`` updates.

    The change comes after n = step, at n = step + 1, 2*step + 1 and so on, counted from the first update also when
    there is a warm-up: the first rate after a long warm-up is a reduced one.

    :param step: updates between two changes, at least 1.
    :param factor: at most 1.
    :param stop_factor_lr: a reduced rate is never below this.
    """

    name: ClassVar[str] = "factor"

    def __init__(
        self,
        step: int,
        factor: float = 1.0,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: WarmUpMode = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        require_integer("step", step)
        if step < 1:
            raise ArgumentValueError(
                f"step is {step}, and a rate changes after at least 1 update.", advice="Give a step above 0."
            )
        self.step = step
        self.factor = require_reducing(factor)
        self.stop_factor_lr = require_finite("stop_factor_lr", stop_factor_lr)

    def _after_warm_up(self, num_update: int) -> float:
        reductions = max(0, (num_update - 1) // self.step)
        if reductions == 0:
            return self.base_lr
        return max(self.base_lr * self.factor**reductions, self.stop_factor_lr)

    def _own_arguments(self) -> dict[str, Any]:
        return {"step": self.step, "factor": self.factor, "stop_factor_lr": self.stop_factor_lr}


def require_reducing(factor: float) -> float:
    """Refuse a factor that would let the rate grow.

    :raises ArgumentTypeError: ``factor`` is no number.
    :raises ArgumentValueError: ``factor`` is above 1.
    """
    number = require_number("factor", factor)
    if not number <= 1:
        raise ArgumentValueError(
            f"factor is {factor}, and the rate would grow without end.", advice="Give a factor of at most 1."
        )
    return number
