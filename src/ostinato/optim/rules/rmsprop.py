"""Steps divided by the running size of the gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.argument_checks import require_flag, require_fraction, require_not_negative
from ostinato.optim.rules.adam import spreads
from ostinato.optim.rules.blocks import Block
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.step import Step


@register
class RMSProp(Optimizer):
    """``n = rho*n + (1-rho)*G^2``, ``w = w - rate*G/(sqrt(n)+epsilon)``, with G coupled.

    Centered, the mean is taken off, and there is momentum with the rate inside:

    ``c = rho*c + (1-rho)*G``, ``m = momentum*m - rate*G/sqrt(n - c^2 + epsilon)``, ``w = w + m``. (Graves, 2013,
    equations 38 to 41.)

    :param rho: 0 to below 1.
    :param momentum: at least 0; of no effect unless centered.
    :param epsilon: see above.
    :param centered: see above.
    :param clip_weights: after the update, weights are cut to plus or minus this; None for no cut.
    """

    default_learning_rate: ClassVar[float] = 0.001
    settings: ClassVar[tuple[str, ...]] = ("rho", "momentum", "epsilon", "centered", "clip_weights")
    deprecated_keywords: ClassVar[Mapping[str, str]] = {"gamma1": "rho", "gamma2": "momentum"}

    def __init__(
        self,
        *,
        rho: float = 0.9,
        momentum: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.rho = require_fraction("rho", rho)
        self.momentum = require_not_negative("momentum", momentum)
        self.epsilon = require_not_negative("epsilon", epsilon)
        self.centered = require_flag("centered", centered)
        self.clip_weights = clip_weights
        self.state_names = ("mean", "var", "momentum") if centered else ("var",)

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.coupled(gradient, weight)
        var = state["var"]
        var.copy_(self.rho * var + (1 - self.rho) * working * working)
        if self.centered:
            mean, momentum = state["mean"], state["momentum"]
            mean.copy_(self.rho * mean + (1 - self.rho) * working)
            spread = (var - mean * mean + self.epsilon).sqrt()
            momentum.copy_(self.momentum * momentum - step.rate * working / spread)
            weight.copy_(weight + momentum)
        else:
            weight.copy_(weight - step.rate * working / (var.sqrt() + self.epsilon))
        if self.clip_weights:
            weight.clamp_(-self.clip_weights, self.clip_weights)

    def _fast(self, block: Block, step: Step) -> None:
        working = step.coupled_list(block.gradients, block.weights)
        variances = block.states["var"]
        torch._foreach_mul_(variances, self.rho)
        torch._foreach_addcmul_(variances, working, working, value=1 - self.rho)
        if self.centered:
            means, momenta = block.states["mean"], block.states["momentum"]
            torch._foreach_mul_(means, self.rho)
            torch._foreach_add_(means, working, alpha=1 - self.rho)
            spread = list(torch._foreach_addcmul(variances, means, means, value=-1))
            torch._foreach_add_(spread, self.epsilon)
            torch._foreach_sqrt_(spread)
            torch._foreach_mul_(momenta, self.momentum)
            torch._foreach_addcdiv_(momenta, working, spread, value=-step.rate)
            torch._foreach_add_(block.weights, momenta)
        else:
            torch._foreach_addcdiv_(block.weights, working, spreads(variances, self.epsilon), value=-step.rate)
        if self.clip_weights:
            torch._foreach_clamp_min_(block.weights, -self.clip_weights)
            torch._foreach_clamp_max_(block.weights, self.clip_weights)
