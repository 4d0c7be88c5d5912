"""Adam with Nesterov's momentum."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ostinato.optim.argument_checks import require_fraction, require_not_negative
from ostinato.optim.rules.adam import spreads, update_moments
from ostinato.optim.rules.blocks import Block
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.settings import Index
from ostinato.optim.rules.step import Step


@register
class Nadam(Optimizer):
    """``m = b1*m + (1-b1)*G``, ``v = b2*v + (1-b2)*G^2``, with G coupled, and with a momentum that warms up:

    ``q(k) = b1*(1 - 0.5*0.96^(k*schedule_decay))``, P the product of q(1) … q(t) and P' = P*q(t+1);

    ``w = w - rate*(q(t+1)*m/(1-P') + (1-q(t))*G/(1-P)) / (sqrt(v/(1-b2^t)) + epsilon)``. (Dozat, 2016.)

    Every weight has its own P, so that weights do not disturb each other's bias correction; it equals
    :class:`torch.optim.NAdam` with ``momentum_decay=schedule_decay``.

    :param beta1: 0 to below 1.
    :param beta2: 0 to below 1.
    :param epsilon: see above.
    :param schedule_decay: how fast the momentum warms up.
    """

    default_learning_rate: ClassVar[float] = 0.001
    settings: ClassVar[tuple[str, ...]] = ("beta1", "beta2", "epsilon", "schedule_decay")

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.beta1, self.beta2 = require_fraction("beta1", beta1), require_fraction("beta2", beta2)
        self.epsilon = require_not_negative("epsilon", epsilon)
        self.schedule_decay = schedule_decay
        self.state_names = ("mean", "var")

    def momentum_at(self, count: int) -> float:
        """Give q(count)."""
        return self.beta1 * (1 - 0.5 * 0.96 ** (count * self.schedule_decay))

    def _new_state(self, index: Index, weight: Tensor) -> State:
        return {**super()._new_state(index, weight), "product": 1.0}

    def _kind(self, index: Index, state: State, count: int) -> Hashable:
        state["product"] *= self.momentum_at(count)
        return state["product"]

    def _factors(self, step: Step) -> tuple[float, float]:
        """What mean and working gradient are multiplied by before the division."""
        now, then = self.momentum_at(step.count), self.momentum_at(step.count + 1)
        return then / (1 - step.kind * then), (1 - now) / (1 - step.kind)

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.coupled(gradient, weight)
        mean, var = state["mean"], state["var"]
        mean.copy_(self.beta1 * mean + (1 - self.beta1) * working)
        var.copy_(self.beta2 * var + (1 - self.beta2) * working * working)
        of_mean, of_working = self._factors(step)
        spread = (var / (1 - self.beta2**step.count)).sqrt() + self.epsilon
        weight.copy_(weight - step.rate * (of_mean * mean + of_working * working) / spread)

    def _fast(self, block: Block, step: Step) -> None:
        working = step.coupled_list(block.gradients, block.weights)
        means, variances = block.states["mean"], block.states["var"]
        update_moments(means, variances, working, self.beta1, self.beta2)
        of_mean, of_working = self._factors(step)
        divisors = spreads(variances, self.epsilon, 1 - self.beta2**step.count)
        torch._foreach_addcdiv_(block.weights, means, divisors, value=-step.rate * of_mean)
        torch._foreach_addcdiv_(block.weights, working, divisors, value=-step.rate * of_working)

    @classmethod
    def product_after(cls, count: int, begin: int, beta1: float, schedule_decay: float) -> float:
        """Give P of a weight that has counted from ``begin`` to ``count``."""
        product = 1.0
        for start in range(begin + 1, count + 1, 2**16):
            counts = np.arange(start, min(start + 2**16, count + 1), dtype=np.float64)
            product *= float(np.prod(beta1 * (1 - 0.5 * 0.96 ** (counts * schedule_decay))))
            if product == 0:  # and so it stays
                break
        return product
