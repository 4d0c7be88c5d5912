"""Adam with the spread of the gradient around its own mean."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.argument_checks import require_fraction, require_not_negative
from ostinato.optim.rules.adam import spreads
from ostinato.optim.rules.adamw import bias_correction
from ostinato.optim.rules.blocks import Block
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.step import Step


@register
class AdaBelief(Optimizer):
    """``m = b1*m + (1-b1)*G``, ``v = b2*v + (1-b2)*(G-m)^2 + epsilon``, with the new m, and G clip-last;

    ``w = w - a*m/(sqrt(v)+epsilon)``, a as in :class:`~ostinato.optim.rules.adamw.AdamW`. (Zhuang and others, 2020.)

    :param beta1: 0 to below 1.
    :param beta2: 0 to below 1.
    :param epsilon: see above; it is added to v at every update.
    :param correct_bias: see :class:`~ostinato.optim.rules.adamw.AdamW`.
    """

    default_learning_rate: ClassVar[float] = 0.001
    default_aggregate_num: ClassVar[int] = 4
    settings: ClassVar[tuple[str, ...]] = ("beta1", "beta2", "epsilon", "correct_bias")

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        correct_bias: bool = True,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.beta1, self.beta2 = require_fraction("beta1", beta1), require_fraction("beta2", beta2)
        self.epsilon = require_not_negative("epsilon", epsilon)
        self.correct_bias = correct_bias
        self.state_names = ("mean", "var")

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.clip_last(gradient, weight)
        mean, var = state["mean"], state["var"]
        mean.copy_(self.beta1 * mean + (1 - self.beta1) * working)
        var.copy_(self.beta2 * var + (1 - self.beta2) * (working - mean) ** 2 + self.epsilon)
        weight.copy_(weight - step.rate * bias_correction(self, step) * mean / (var.sqrt() + self.epsilon))

    def _fast(self, block: Block, step: Step) -> None:
        means, variances = block.states["mean"], block.states["var"]
        working = step.clip_last_list(block.gradients, block.weights)
        torch._foreach_mul_(means, self.beta1)
        torch._foreach_add_(means, working, alpha=1 - self.beta1)
        surprise = torch._foreach_sub(working, means)
        torch._foreach_mul_(variances, self.beta2)
        torch._foreach_addcmul_(variances, surprise, surprise, value=1 - self.beta2)
        torch._foreach_add_(variances, self.epsilon)
        rate = step.rate * bias_correction(self, step)
        torch._foreach_addcdiv_(block.weights, means, spreads(variances, self.epsilon), value=-rate)
