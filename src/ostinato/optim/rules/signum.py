"""Steps of one length in the direction of the sign."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.argument_checks import require_not_negative
from ostinato.optim.rules.blocks import Block
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.step import Step


@register
class Signum(Optimizer):
    """``m = momentum*m - (1-momentum)*G``, ``w = (1 - rate*wd_lh)*w + rate*sign(m)``, with G coupled.

    Without momentum: ``w = (1 - rate*(decay + wd_lh))*w - rate*sign(s*g)``. The sign of 0 is 0. (Bernstein and others,
    2018.)

    :param momentum: at least 0.
    :param wd_lh: decay beside the sign instead of inside the momentum.
    """

    default_learning_rate: ClassVar[float] = 0.01
    settings: ClassVar[tuple[str, ...]] = ("momentum", "wd_lh")

    def __init__(self, *, momentum: float = 0.9, wd_lh: float = 0.0, **common: Any) -> None:
        super().__init__(**common)
        self.momentum = require_not_negative("momentum", momentum)
        self.wd_lh = wd_lh
        self.state_names = ("momentum",) if self.momentum else ()

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        if not self.momentum:
            shrunk = (1 - step.rate * (step.decay + self.wd_lh)) * weight
            weight.copy_(shrunk - step.rate * torch.sign(step.rescale * gradient))
            return
        momentum = state["momentum"]
        momentum.copy_(self.momentum * momentum - (1 - self.momentum) * step.coupled(gradient, weight))
        weight.copy_((1 - step.rate * self.wd_lh) * weight + step.rate * torch.sign(momentum))

    def _fast(self, block: Block, step: Step) -> None:
        weights = block.weights
        if not self.momentum:
            signs = torch._foreach_sign(block.gradients)
            torch._foreach_mul_(weights, 1 - step.rate * (step.decay + self.wd_lh))
            torch._foreach_add_(weights, signs, alpha=-step.rate if step.rescale > 0 else step.rate)
            return
        momenta = block.states["momentum"]
        torch._foreach_mul_(momenta, self.momentum)
        working = step.coupled_list(block.gradients, weights)
        torch._foreach_add_(momenta, working, alpha=-(1 - self.momentum))
        if self.wd_lh:
            torch._foreach_mul_(weights, 1 - step.rate * self.wd_lh)
        torch._foreach_add_(weights, torch._foreach_sign(momenta), alpha=step.rate)
