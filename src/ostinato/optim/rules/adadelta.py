"""Steps in the weight's own unit."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.argument_checks import require_fraction, require_not_negative
from ostinato.optim.rules.blocks import Block
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.step import Step


@register
class AdaDelta(Optimizer):
    """``a = rho*a + (1-rho)*G^2``, ``D = sqrt(d+epsilon)/sqrt(a+epsilon)*G``, ``d = rho*d + (1-rho)*D^2``,

    ``w = w - rate*D``, with G coupled. (Zeiler, 2012.)

    :param rho: 0 to below 1.
    :param epsilon: see above.
    """

    default_learning_rate: ClassVar[float] = 1.0
    settings: ClassVar[tuple[str, ...]] = ("rho", "epsilon")

    def __init__(self, *, rho: float = 0.9, epsilon: float = 1e-6, **common: Any) -> None:
        super().__init__(**common)
        self.rho = require_fraction("rho", rho)
        self.epsilon = require_not_negative("epsilon", epsilon)
        self.state_names = ("acc_grad", "acc_delta")

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.coupled(gradient, weight)
        gradients, changes = state["acc_grad"], state["acc_delta"]
        gradients.copy_(self.rho * gradients + (1 - self.rho) * working * working)
        change = (changes + self.epsilon).sqrt() / (gradients + self.epsilon).sqrt() * working
        changes.copy_(self.rho * changes + (1 - self.rho) * change * change)
        weight.copy_(weight - step.rate * change)

    def _fast(self, block: Block, step: Step) -> None:
        working = step.coupled_list(block.gradients, block.weights)
        gradients, changes = block.states["acc_grad"], block.states["acc_delta"]
        torch._foreach_mul_(gradients, self.rho)
        torch._foreach_addcmul_(gradients, working, working, value=1 - self.rho)
        change = list(torch._foreach_add(changes, self.epsilon))
        torch._foreach_div_(change, torch._foreach_add(gradients, self.epsilon))
        torch._foreach_sqrt_(change)
        torch._foreach_mul_(change, working)
        torch._foreach_mul_(changes, self.rho)
        torch._foreach_addcmul_(changes, change, change, value=1 - self.rho)
        torch._foreach_add_(block.weights, change, alpha=-step.rate)
