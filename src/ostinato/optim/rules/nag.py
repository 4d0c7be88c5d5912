"""Nesterov's accelerated gradient."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.argument_checks import require_not_negative
from ostinato.optim.rules.blocks import Block
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.step import Step


@register
class NAG(Optimizer):
    """``m = momentum*m - rate*G``, ``w = w + momentum*m - rate*G``, with G coupled.

    Without momentum it is plain gradient descent. As in :class:`~ostinato.optim.rules.sgd.SGD`, the rate is inside the
    momentum.

    :param momentum: at least 0.
    """

    default_learning_rate: ClassVar[float] = 0.1
    settings: ClassVar[tuple[str, ...]] = ("momentum",)

    def __init__(self, *, momentum: float = 0.9, **common: Any) -> None:
        super().__init__(**common)
        self.momentum = require_not_negative("momentum", momentum)
        self.state_names = ("momentum",) if self.momentum else ()

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.coupled(gradient, weight)
        if not self.momentum:
            weight.copy_(weight - step.rate * working)
            return
        momentum = state["momentum"]
        momentum.copy_(self.momentum * momentum - step.rate * working)
        weight.copy_(weight + self.momentum * momentum - step.rate * working)

    def _fast(self, block: Block, step: Step) -> None:
        changes = list(torch._foreach_mul(step.coupled_list(block.gradients, block.weights), -step.rate))
        if self.momentum:
            momenta = block.states["momentum"]
            torch._foreach_mul_(momenta, self.momentum)
            torch._foreach_add_(momenta, changes)
            torch._foreach_add_(changes, momenta, alpha=self.momentum)
        torch._foreach_add_(block.weights, changes)  # the weight is rounded once
