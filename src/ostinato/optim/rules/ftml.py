"""Follow the moving leader."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.argument_checks import require_fraction, require_not_negative
from ostinato.optim.rules.adam import spreads
from ostinato.optim.rules.blocks import Block
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.step import Step


@register
class FTML(Optimizer):
    """``v = b2*v + (1-b2)*G^2``, ``D = (1-b1^t)/rate * (sqrt(v/(1-b2^t)) + epsilon)``, with G coupled;

    ``z = b1*z + (1-b1)*G - (D - b1*d)*w``, ``d = D``, ``w = -z/D``. (Zheng and Kwok, 2017.) A rate of 0 leaves weight
    and state alone.

    :param beta1: 0 to below 1.
    :param beta2: 0 to below 1.
    :param epsilon: see above.
    """

    default_learning_rate: ClassVar[float] = 0.0025
    settings: ClassVar[tuple[str, ...]] = ("beta1", "beta2", "epsilon")
    divides_by_rate: ClassVar[bool] = True

    def __init__(self, *, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **common: Any) -> None:
        super().__init__(**common)
        self.beta1, self.beta2 = require_fraction("beta1", beta1), require_fraction("beta2", beta2)
        self.epsilon = require_not_negative("epsilon", epsilon)
        self.state_names = ("d", "v", "z")

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.coupled(gradient, weight)
        d, v, z = state["d"], state["v"], state["z"]
        v.copy_(self.beta2 * v + (1 - self.beta2) * working * working)
        spread = (v / (1 - self.beta2**step.count)).sqrt() + self.epsilon
        new = (1 - self.beta1**step.count) / step.rate * spread
        z.copy_(self.beta1 * z + (1 - self.beta1) * working - (new - self.beta1 * d) * weight)
        d.copy_(new)
        weight.copy_(-z / d)

    def _fast(self, block: Block, step: Step) -> None:
        working = step.coupled_list(block.gradients, block.weights)
        weights, ds, vs, zs = block.weights, block.states["d"], block.states["v"], block.states["z"]
        torch._foreach_mul_(vs, self.beta2)
        torch._foreach_addcmul_(vs, working, working, value=1 - self.beta2)
        new = spreads(vs, self.epsilon, 1 - self.beta2**step.count)
        torch._foreach_mul_(new, (1 - self.beta1**step.count) / step.rate)
        torch._foreach_mul_(zs, self.beta1)
        torch._foreach_add_(zs, working, alpha=1 - self.beta1)
        torch._foreach_addcmul_(zs, ds, weights, value=self.beta1)
        torch._foreach_addcmul_(zs, new, weights, value=-1)
        torch._foreach_copy_(ds, new)
        torch._foreach_copy_(weights, zs)
        torch._foreach_div_(weights, new)
        torch._foreach_neg_(weights)
