"""A rate that falls along half a wave."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ostinato.optim.argument_checks import require_finite
from ostinato.optim.rate_schedules.schedule import RateSchedule, WarmUpMode, require_room_after_warm_up


class CosineSchedule(RateSchedule):
    """``final_lr + (base_lr - final_lr) * (1 + cos(pi * way)) / 2``, the way running from 0 after the warm-up to 1.

    :param max_update: the update at which ``final_lr`` is reached; the rate stays there.
    :param final_lr: the rate at the end.
    """

    name: ClassVar[str] = "cosine"

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0.0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: WarmUpMode = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        require_room_after_warm_up(max_update, warmup_steps)
        self.max_update = max_update
        self.final_lr = require_finite("final_lr", final_lr)

    def _after_warm_up(self, num_update: int) -> float:
        way = (min(num_update, self.max_update) - self.warmup_steps) / (self.max_update - self.warmup_steps)
        return self.final_lr + (self.base_lr - self.final_lr) * (1 + math.cos(math.pi * way)) / 2

    def _own_arguments(self) -> dict[str, Any]:
        return {"max_update": self.max_update, "final_lr": self.final_lr}
