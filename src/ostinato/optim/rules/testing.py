"""The simplest rule there is, for tests of stores and trainers."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.step import Step


@register
class Test(Optimizer):
    """``w = w - rate*(s*g + decay*w)``. There is no clipping."""

    default_learning_rate: ClassVar[float] = 0.01
    __test__ = False  # pytest is not meant

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        weight.copy_(weight - step.rate * (step.rescale * gradient + step.decay * weight))
