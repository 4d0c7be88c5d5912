"""Adam with steps as long as the weight is large, layer by layer."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.argument_checks import require_fraction, require_not_negative
from ostinato.optim.rules import fused_kernels
from ostinato.optim.rules.adam import spreads, update_moments
from ostinato.optim.rules.blocks import Block, Job, block_size, measured_blocks, whole_groups
from ostinato.optim.rules.norms import PieceNorms, multiplied, trust_ratio
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.step import Step


@register
class LAMB(Optimizer):
    """``m = b1*m + (1-b1)*G``, ``v = b2*v + (1-b2)*G^2``, with G bare; ``u = m'/(sqrt(v')+epsilon) + decay*w``;

    ``w = w - rate*ratio*u``, where the ratio is ``||w||/||u||`` over the whole weight, or 1 if either is 0. m' and v'
    are corrected for their bias: ``m/(1-b1^t)``, ``v/(1-b2^t)``. (You and others, 2020.)

    :param beta1: 0 to below 1.
    :param beta2: 0 to below 1.
    :param epsilon: see above.
    :param lower_bound: ``||w||`` counts as at least this; None for no bound.
    :param upper_bound: ``||w||`` counts as at most this; None for no bound.
    :param bias_correction: False takes m and v as they are.
    """

    default_learning_rate: ClassVar[float] = 0.001
    default_aggregate_num: ClassVar[int] = 4
    max_aggregate_num: ClassVar[float] = 45
    settings: ClassVar[tuple[str, ...]] = (
        "beta1",
        "beta2",
        "epsilon",
        "lower_bound",
        "upper_bound",
        "bias_correction",
    )
    cut = "tensors"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        bias_correction: bool = True,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.beta1, self.beta2 = require_fraction("beta1", beta1), require_fraction("beta2", beta2)
        self.epsilon = require_not_negative("epsilon", epsilon)
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        self.bias_correction = bias_correction
        self.state_names = ("mean", "var")

    def _corrections(self, step: Step) -> tuple[float, float]:
        if not self.bias_correction:
            return 1.0, 1.0
        return 1 - self.beta1**step.count, 1 - self.beta2**step.count

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.bare(gradient)
        mean, var = state["mean"], state["var"]
        mean.copy_(self.beta1 * mean + (1 - self.beta1) * working)
        var.copy_(self.beta2 * var + (1 - self.beta2) * working * working)
        correction1, correction2 = self._corrections(step)
        change = mean / correction1 / ((var / correction2).sqrt() + self.epsilon) + step.decay * weight
        ratio = trust_ratio(weight.norm(), change.norm(), self.lower_bound, self.upper_bound)
        weight.copy_(weight - step.rate * ratio * change)

    def _update_dense(self, jobs: list[Job], step: Step) -> None:
        if not self.use_fused_step:
            super()._update_dense(jobs, step)
            return
        for few in whole_groups(jobs, block_size(jobs[0].weight.device)):
            self._update_few(few, step)

    def _update_few(self, jobs: list[Job], step: Step) -> None:
        """Update weights that together fit a block, or one larger one: find the changes, measure them, apply them."""
        device = jobs[0].weight.device
        weight_norms, change_norms = PieceNorms(len(jobs), device), PieceNorms(len(jobs), device)
        walked: list[tuple[Block, list[Tensor]]] = []
        for block in measured_blocks(jobs, self.state_names):
            changes = self._changes(block, step)
            weight_norms.add(block.jobs, block.weights)
            change_norms.add(block.jobs, changes)
            walked.append((block, changes))
        ratio = trust_ratio(weight_norms.result(), change_norms.result(), self.lower_bound, self.upper_bound)
        for block, changes in walked:
            torch._foreach_add_(block.weights, multiplied(changes, ratio * step.rate, block.jobs))
            block.store()

    def _changes(self, block: Block, step: Step) -> list[Tensor]:
        """Bring the moments forward, and give -u."""
        weights, means, variances = block.weights, block.states["mean"], block.states["var"]
        working = step.bare_list(block.gradients)
        changes = list(torch._foreach_mul(weights, -step.decay))
        if not fused_kernels.adam(
            changes,
            working,
            means,
            variances,
            rate=1.0,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            count=step.count if self.bias_correction else math.inf,
            decay=0.0,
        ):
            correction1, correction2 = self._corrections(step)
            update_moments(means, variances, working, self.beta1, self.beta2)
            divisors = spreads(variances, self.epsilon, correction2)
            torch._foreach_addcdiv_(changes, means, divisors, value=-1 / correction1)
        return changes
