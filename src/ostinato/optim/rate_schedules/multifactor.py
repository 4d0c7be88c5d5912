"""The rate times a factor at listed updates."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import Any, ClassVar

from ostinato.errors import ArgumentValueError, ContractError
from ostinato.optim.rate_schedules.factor import require_reducing
from ostinato.optim.rate_schedules.schedule import RateSchedule, WarmUpMode, require_integer


class MultiFactorSchedule(RateSchedule):
    """``base_lr * factor**k``, where k is the number of listed updates below n.

    :param step: the updates after which the rate changes: a list of ints, strictly ascending, each at least 1.
    :param factor: at most 1.
    """

    name: ClassVar[str] = "multifactor"

    def __init__(
        self,
        step: list[int],
        factor: float = 1.0,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: WarmUpMode = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if not isinstance(step, list) or not step:
            raise ContractError(f"step is {step!r}.", advice="Give a list with at least one update number.")
        for update in step:
            require_integer("step", update)
        if step[0] < 1 or any(late <= early for early, late in pairwise(step)):
            raise ArgumentValueError(
                f"step is {step}, and the update numbers have to ascend from at least 1.",
                advice="Sort them and name each once.",
            )
        self.step = list(step)
        self.factor = require_reducing(factor)

    def _after_warm_up(self, num_update: int) -> float:
        return self.base_lr * self.factor ** bisect_left(self.step, num_update)

    def _own_arguments(self) -> dict[str, Any]:
        return {"step": list(self.step), "factor": self.factor}
