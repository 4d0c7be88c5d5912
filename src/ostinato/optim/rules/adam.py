"""Adam: steps measured by the running mean and spread of the gradient."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.argument_checks import require_flag, require_fraction, require_fused, require_not_negative
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import fused_kernels
from ostinato.optim.rules.blocks import Block, Job
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.step import Step


@register
class Adam(Optimizer):
    """``m = b1*m + (1-b1)*G``, ``v = b2*v + (1-b2)*G^2``, with G coupled;

    ``w = w - rate*sqrt(1-b2^t)/(1-b1^t) * m/(sqrt(v)+epsilon)``. (Kingma and Ba, 2015, in the order of section 2's last
    paragraph: epsilon is added before the bias is corrected. :class:`torch.optim.Adam` adds it after, which differs
    where sqrt(v) is comparable with epsilon.)

    :param beta1: 0 to below 1.
    :param beta2: 0 to below 1.
    :param epsilon: see above.
    :param lazy_update: True lets a row-sparse gradient change the listed rows only, states included, although t counts
        every update. False: the dense rule.
    """

    default_learning_rate: ClassVar[float] = 0.001
    settings: ClassVar[tuple[str, ...]] = ("beta1", "beta2", "epsilon", "lazy_update")

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = False,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.beta1, self.beta2 = require_fraction("beta1", beta1), require_fraction("beta2", beta2)
        self.epsilon = require_not_negative("epsilon", epsilon)
        self.lazy_update = require_flag("lazy_update", lazy_update)
        self.state_names = ("mean", "var")
        if self.lazy_update:
            require_fused(self.name, self.use_fused_step)

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.coupled(gradient, weight)
        mean, var = state["mean"], state["var"]
        mean.copy_(self.beta1 * mean + (1 - self.beta1) * working)
        var.copy_(self.beta2 * var + (1 - self.beta2) * working * working)
        rate = step.rate * math.sqrt(1 - self.beta2**step.count) / (1 - self.beta1**step.count)
        weight.copy_(weight - rate * mean / (var.sqrt() + self.epsilon))

    def _is_one_walk(self, step: Step) -> bool:
        return step.rescale == 1 and step.clip is None

    def _fast(self, block: Block, step: Step) -> None:
        correction1, correction2 = 1 - self.beta1**step.count, 1 - self.beta2**step.count
        means, variances = block.states["mean"], block.states["var"]
        if fused_kernels.adam(
            block.weights,
            step.bare_list(block.gradients),
            means,
            variances,
            rate=step.rate,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon / math.sqrt(correction2),
            count=step.count,
            decay=step.decay,
        ):
            return
        working = step.coupled_list(block.gradients, block.weights)
        update_moments(means, variances, working, self.beta1, self.beta2)
        rate = step.rate * math.sqrt(correction2) / correction1
        torch._foreach_addcdiv_(block.weights, means, spreads(variances, self.epsilon), value=-rate)

    def _update_rows(self, job: Job, gradient: RowSparse, step: Step) -> None:
        if self.lazy_update:
            self._update_listed_rows(job, gradient, step)
        else:
            super()._update_rows(job, gradient, step)


def update_moments(
    means: list[Tensor], variances: list[Tensor], working: list[Tensor], beta1: float, beta2: float
) -> None:
    """``m = b1*m + (1-b1)*G`` and ``v = b2*v + (1-b2)*G^2``, in place."""
    torch._foreach_mul_(means, beta1)
    torch._foreach_add_(means, working, alpha=1 - beta1)
    torch._foreach_mul_(variances, beta2)
    torch._foreach_addcmul_(variances, working, working, value=1 - beta2)


def spreads(variances: list[Tensor], epsilon: float, correction: float = 1.0) -> list[Tensor]:
    """``sqrt(v/correction) + epsilon``, as new tensors."""
    roots = list(torch._foreach_sqrt(variances))
    if correction != 1.0:
        torch._foreach_mul_(roots, 1 / math.sqrt(correction))
    torch._foreach_add_(roots, epsilon)
    return roots
