"""A rate that falls along a power of the way that is left."""

from __future__ import annotations

from typing import Any, ClassVar

from ostinato.optim.argument_checks import require_finite
from ostinato.optim.rate_schedules.schedule import RateSchedule, WarmUpMode, require_room_after_warm_up


class PolySchedule(RateSchedule):
    """``final_lr + (base_lr - final_lr) * (1 - way)**pwr``, where the way runs from 0 after the warm-up to 1.

    :param max_update: the update at which ``final_lr`` is reached; the rate stays there.
    :param pwr: the power; 1 is a straight line.
    :param final_lr: the rate at the end.
    """

    name: ClassVar[str] = "poly"

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2,
        final_lr: float = 0.0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: WarmUpMode = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        require_room_after_warm_up(max_update, warmup_steps)
        self.max_update = max_update
        self.pwr = require_finite("pwr", pwr)
        self.final_lr = require_finite("final_lr", final_lr)

    def _after_warm_up(self, num_update: int) -> float:
        way = (min(num_update, self.max_update) - self.warmup_steps) / (self.max_update - self.warmup_steps)
        return self.final_lr + (self.base_lr - self.final_lr) * (1 - way) ** self.pwr

    def _own_arguments(self) -> dict[str, Any]:
        return {"max_update": self.max_update, "pwr": self.pwr, "final_lr": self.final_lr}
