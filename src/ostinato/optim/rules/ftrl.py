"""Follow the regularised leader: weights that are exactly zero where nothing speaks for them."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules.blocks import Block, Job
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.step import Step


@register
class Ftrl(Optimizer):
    """``z = z + G - (sqrt(n+G^2) - sqrt(n))/rate * w``, ``n = n + G^2``, with G bare;

    ``w = -sign(z)*max(|z|-lamda1, 0) / ((beta+sqrt(n))/rate + decay)``. (McMahan and others, 2013.)

    The weight is computed anew from z and n: at the first update an element with zero gradient becomes 0, whatever it
    was. A rate of 0 leaves weight and state alone.

    :param lamda1: a z whose size is below this makes a weight of 0.
    :param beta: see above.
    :param lazy_update: True lets a row-sparse gradient change the listed rows only. A parameter whose ``stype`` is
        ``"row_sparse"`` is always updated so. False: the dense rule.
    """

    default_learning_rate: ClassVar[float] = 0.1
    settings: ClassVar[tuple[str, ...]] = ("lamda1", "beta", "lazy_update")
    divides_by_rate: ClassVar[bool] = True

    def __init__(self, *, lamda1: float = 0.01, beta: float = 1.0, lazy_update: bool = False, **common: Any) -> None:
        super().__init__(**common)
        self.lamda1 = lamda1
        self.beta = beta
        self.lazy_update = lazy_update
        self.state_names = ("z", "n")

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        working = step.bare(gradient)
        z, n = state["z"], state["n"]
        grown = n + working * working
        z.copy_(z + working - (grown.sqrt() - n.sqrt()) / step.rate * weight)
        n.copy_(grown)
        size = (z.abs() - self.lamda1).clamp(min=0)
        weight.copy_(-torch.sign(z) * size / ((self.beta + n.sqrt()) / step.rate + step.decay))

    def _fast(self, block: Block, step: Step) -> None:
        working = step.bare_list(block.gradients)
        weights, zs, ns = block.weights, block.states["z"], block.states["n"]
        before = torch._foreach_sqrt(ns)
        torch._foreach_addcmul_(ns, working, working)
        after = list(torch._foreach_sqrt(ns))
        torch._foreach_add_(zs, working)
        torch._foreach_addcmul_(zs, torch._foreach_sub(after, before), weights, value=-1 / step.rate)
        torch._foreach_add_(after, self.beta + step.decay * step.rate)
        # -sign(z)*max(|z|-lamda1, 0) is clip(z, lamda1) - z.
        torch._foreach_copy_(weights, zs)
        torch._foreach_clamp_min_(weights, -self.lamda1)
        torch._foreach_clamp_max_(weights, self.lamda1)
        torch._foreach_sub_(weights, zs)
        torch._foreach_div_(weights, after)
        torch._foreach_mul_(weights, step.rate)

    def _update_rows(self, job: Job, gradient: RowSparse, step: Step) -> None:
        if self.lazy_update or getattr(self.param_dict.get(job.index), "stype", "default") == "row_sparse":
            self._update_listed_rows(job, gradient, step)
        else:
            super()._update_rows(job, gradient, step)
