"""Adam with decay beside the moments."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.argument_checks import require_fraction, require_not_negative
from ostinato.optim.rules import fused_kernels
from ostinato.optim.rules.adam import spreads, update_moments
from ostinato.optim.rules.blocks import Block
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.step import Step


@register
class AdamW(Optimizer):
    """``m = b1*m + (1-b1)*G``, ``v = b2*v + (1-b2)*G^2``, with G bare; ``w = w - a*(m/(sqrt(v)+epsilon) + decay*w)``.

    a is ``rate*sqrt(1-b2^t)/(1-b1^t)``, or the rate without ``correct_bias``. The decay is thus scaled by the corrected
    rate, about a third of the rate at t = 1. :class:`torch.optim.AdamW` decays by the plain rate; it is known as
    ``"torch.AdamW"``.

    :param beta1: 0 to below 1.
    :param beta2: 0 to below 1.
    :param epsilon: see above.
    :param correct_bias: see above.
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
        working = step.bare(gradient)
        mean, var = state["mean"], state["var"]
        mean.copy_(self.beta1 * mean + (1 - self.beta1) * working)
        var.copy_(self.beta2 * var + (1 - self.beta2) * working * working)
        rate = step.rate * bias_correction(self, step)
        weight.copy_(weight - rate * (mean / (var.sqrt() + self.epsilon) + step.decay * weight))

    def _is_one_walk(self, step: Step) -> bool:
        return step.rescale == 1 and step.clip is None and not step.decay

    def _fast(self, block: Block, step: Step) -> None:
        weights, means, variances = block.weights, block.states["mean"], block.states["var"]
        rate = step.rate * bias_correction(self, step)
        working = step.bare_list(block.gradients)
        # Decay and step are added up before they meet the weight, which then is rounded once, as in the equation.
        changes = list(torch._foreach_mul(weights, -rate * step.decay)) if step.decay else weights
        # Torch's kernel adds epsilon after the correction.
        if not fused_kernels.adam(
            changes,
            working,
            means,
            variances,
            rate=step.rate,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon / (math.sqrt(1 - self.beta2**step.count) if self.correct_bias else 1.0),
            count=step.count if self.correct_bias else math.inf,
            decay=0.0,
        ):
            update_moments(means, variances, working, self.beta1, self.beta2)
            torch._foreach_addcdiv_(changes, means, spreads(variances, self.epsilon), value=-rate)
        if changes is not weights:
            torch._foreach_add_(weights, changes)


def bias_correction(rule: Any, step: Step) -> float:
    """``sqrt(1-b2^t)/(1-b1^t)``, or 1 for a rule with ``correct_bias=False``."""
    if not rule.correct_bias:
        return 1.0
    return math.sqrt(1 - rule.beta2**step.count) / (1 - rule.beta1**step.count)
