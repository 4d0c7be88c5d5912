"""Adam with the largest gradient in place of the spread."""

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
class AdaMax(Optimizer):
    """``m = b1*m + (1-b1)*G``, ``u = max(b2*u, |G|)``, ``w = w - rate/(1-b1^t) * m/(u+epsilon)``, with G coupled.

    (Kingma and Ba, 2015, section 7.1.)

    :param beta1: 0 to below 1.
    :param beta2: 0 to below 1.
    :param epsilon: see above.
    """

    default_learning_rate: ClassVar[float] = 0.002
    settings: ClassVar[tuple[str, ...]] = ("beta1", "beta2", "epsilon")

    def __init__(self, *, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, **common: Any) -> None:
        super().__init__(**common)
        self.beta1, self.beta2 = require_fraction("beta1", beta1), require_fraction("beta2", beta2)
        self.epsilon = require_not_negative("epsilon", epsilon)
        self.state_names = ("mean", "inf_norm")

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.coupled(gradient, weight)
        mean, largest = state["mean"], state["inf_norm"]
        mean.copy_(self.beta1 * mean + (1 - self.beta1) * working)
        largest.copy_(torch.maximum(self.beta2 * largest, working.abs()))
        weight.copy_(weight - step.rate / (1 - self.beta1**step.count) * mean / (largest + self.epsilon))

    def _fast(self, block: Block, step: Step) -> None:
        means, largest = block.states["mean"], block.states["inf_norm"]
        working = step.coupled_list(block.gradients, block.weights)
        torch._foreach_mul_(means, self.beta1)
        torch._foreach_add_(means, working, alpha=1 - self.beta1)
        torch._foreach_mul_(largest, self.beta2)
        torch._foreach_maximum_(largest, torch._foreach_abs(working))
        rate = step.rate / (1 - self.beta1**step.count)
        torch._foreach_addcdiv_(block.weights, means, torch._foreach_add(largest, self.epsilon), value=-rate)
