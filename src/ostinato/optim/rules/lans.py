"""LAMB on normalised gradients, with Nesterov's momentum."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.argument_checks import require_fraction, require_not_negative
from ostinato.optim.rules.adam import spreads, update_moments
from ostinato.optim.rules.blocks import Block, Job, measured_blocks
from ostinato.optim.rules.norms import PieceNorms, multiplied, trust_ratio
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.step import Step


@register
class LANS(Optimizer):
    """``G = clip(s*g/||s*g||, c)``, ``m = b1*m + (1-b1)*G``, ``v = b2*v + (1-b2)*G^2``, ``e = sqrt(v/(1-b2^t)) + eps``;

    ``u = m/(1-b1^t)/e + decay*w``, ``q = G/e + decay*w``,
    ``w = w - rate*(b1*ratio(u)*u + (1-b1)*ratio(q)*q)``, where the ratio is ``||w||`` over the norm of its argument, or
    1 if either is 0. (Zheng and others, 2020.) A gradient of zeros is left as it is.

    :param beta1: 0 to below 1.
    :param beta2: 0 to below 1.
    :param epsilon: see above.
    :param lower_bound: ``||w||`` counts as at least this; None for no bound.
    :param upper_bound: ``||w||`` counts as at most this; None for no bound.
    """

    default_learning_rate: ClassVar[float] = 0.001
    default_aggregate_num: ClassVar[int] = 4
    max_aggregate_num: ClassVar[float] = 45
    settings: ClassVar[tuple[str, ...]] = ("beta1", "beta2", "epsilon", "lower_bound", "upper_bound")
    cut = "tensors"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.beta1, self.beta2 = require_fraction("beta1", beta1), require_fraction("beta2", beta2)
        self.epsilon = require_not_negative("epsilon", epsilon)
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        self.state_names = ("mean", "var")

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.rescale * gradient
        norm = working.norm()
        working = working / torch.where(norm == 0, 1.0, norm)
        if step.clip is not None:
            working = working.clamp(-step.clip, step.clip)
        mean, var = state["mean"], state["var"]
        mean.copy_(self.beta1 * mean + (1 - self.beta1) * working)
        var.copy_(self.beta2 * var + (1 - self.beta2) * working * working)
        divisor = (var / (1 - self.beta2**step.count)).sqrt() + self.epsilon
        slow = mean / (1 - self.beta1**step.count) / divisor + step.decay * weight
        quick = working / divisor + step.decay * weight
        slow_ratio = trust_ratio(weight.norm(), slow.norm(), self.lower_bound, self.upper_bound)
        quick_ratio = trust_ratio(weight.norm(), quick.norm(), self.lower_bound, self.upper_bound)
        change = self.beta1 * slow_ratio * slow + (1 - self.beta1) * quick_ratio * quick
        weight.copy_(weight - step.rate * change)

    def _update_dense(self, jobs: list[Job], step: Step) -> None:
        if not self.use_fused_step:
            super()._update_dense(jobs, step)
            return
        # Three walks: measure the gradient, measure the two directions, go along them. See lamb.py.
        count, device = len(jobs), jobs[0].weight.device
        gradient_norms = PieceNorms(count, device)
        for block in measured_blocks(jobs, self.state_names):
            gradient_norms.add(block.jobs, block.gradients)
        norms = gradient_norms.result()
        scale = step.rescale / torch.where(norms == 0, 1.0, norms * abs(step.rescale))
        weight_norms, slow_norms, quick_norms = (PieceNorms(count, device) for _ in range(3))
        for block in measured_blocks(jobs, self.state_names):
            working = self._working(block, scale, step)
            update_moments(block.states["mean"], block.states["var"], working, self.beta1, self.beta2)
            slow, quick = self._changes(block, working, step)
            weight_norms.add(block.jobs, block.weights)
            slow_norms.add(block.jobs, slow)
            quick_norms.add(block.jobs, quick)
        weight = weight_norms.result()
        slow_ratio = trust_ratio(weight, slow_norms.result(), self.lower_bound, self.upper_bound)
        quick_ratio = trust_ratio(weight, quick_norms.result(), self.lower_bound, self.upper_bound)
        for block in measured_blocks(jobs, self.state_names):
            slow, quick = self._changes(block, self._working(block, scale, step), step)
            torch._foreach_add_(block.weights, multiplied(slow, slow_ratio * (-step.rate * self.beta1), block.jobs))
            quick = multiplied(quick, quick_ratio * (-step.rate * (1 - self.beta1)), block.jobs)
            torch._foreach_add_(block.weights, quick)

    @staticmethod
    def _working(block: Block, scale: Tensor, step: Step) -> list[Tensor]:
        working = multiplied(block.gradients, scale, block.jobs)
        if step.clip is not None:
            torch._foreach_clamp_min_(working, -step.clip)
            torch._foreach_clamp_max_(working, step.clip)
        return working

    def _changes(self, block: Block, working: list[Tensor], step: Step) -> tuple[list[Tensor], list[Tensor]]:
        divisors = spreads(block.states["var"], self.epsilon, 1 - self.beta2**step.count)
        slow = list(torch._foreach_div(block.states["mean"], divisors))
        torch._foreach_mul_(slow, 1 / (1 - self.beta1**step.count))
        quick = list(torch._foreach_div(working, divisors))
        if step.decay:
            torch._foreach_add_(slow, block.weights, alpha=step.decay)
            torch._foreach_add_(quick, block.weights, alpha=step.decay)
        return slow, quick
