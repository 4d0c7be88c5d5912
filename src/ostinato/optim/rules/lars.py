"""Momentum descent with steps as long as the weight is large, layer by layer."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.argument_checks import require_flag, require_fused, require_not_negative
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules.blocks import Block, Job, chosen_row_blocks, computing_dtype, measured_blocks
from ostinato.optim.rules.norms import PieceNorms, multiplied
from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.settings import Index
from ostinato.optim.rules.step import Step

EXEMPT_ENDINGS = ("gamma", "beta", "bias")


@register
class LARS(Optimizer):
    """:class:`~ostinato.optim.rules.sgd.SGD` with the rate ``rate*k``, where

    ``k = eta*||w||/(||s*g|| + decay*||w|| + epsilon)``, or 1 where either norm is 0. (You, Gitman and Ginsburg, 2017.)

    Weights whose name ends in ``gamma``, ``beta`` or ``bias`` take k = 1. Names come from ``param_idx2name``; the
    parameter trainer passes them.

    :param momentum: at least 0.
    :param eta: see above.
    :param epsilon: see above.
    :param lazy_update: True lets a row-sparse gradient change the listed rows only; the norms are the whole ones.
    """

    default_learning_rate: ClassVar[float] = 0.1
    settings: ClassVar[tuple[str, ...]] = ("momentum", "eta", "epsilon", "lazy_update")
    cut = "tensors"

    def __init__(
        self,
        *,
        momentum: float = 0.0,
        eta: float = 0.001,
        epsilon: float = 1e-8,
        lazy_update: bool = False,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.momentum = require_not_negative("momentum", momentum)
        self.eta = eta
        self.epsilon = require_not_negative("epsilon", epsilon)
        self.lazy_update = require_flag("lazy_update", lazy_update)
        self.state_names = ("momentum",) if self.momentum else ()
        if self.lazy_update:
            require_fused(self.name, self.use_fused_step, self.multi_precision)

    def is_exempt(self, index: Index) -> bool:
        """True when the weight's name says that its rate is not adapted."""
        return self.idx2name.get(index, "").endswith(EXEMPT_ENDINGS)

    def _kind(self, index: Index, state: State, count: int) -> Hashable:
        return self.is_exempt(index)

    def _factor(self, weight_norms: Tensor, gradient_norms: Tensor, step: Step) -> Tensor:
        if step.kind:
            return torch.ones_like(weight_norms)
        scaled = gradient_norms * abs(step.rescale)
        factor = self.eta * weight_norms / (scaled + step.decay * weight_norms + self.epsilon)
        return torch.where((weight_norms > 0) & (scaled > 0), factor, 1.0)

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        rate = step.rate * self._factor(weight.norm(), gradient.norm(), step)
        working = step.coupled(gradient, weight)
        if not self.momentum:
            weight.copy_(weight - rate * working)
            return
        momentum = state["momentum"]
        momentum.copy_(self.momentum * momentum - rate * working)
        weight.copy_(weight + momentum)

    def _update_dense(self, jobs: list[Job], step: Step) -> None:
        if not self.use_fused_step:
            super()._update_dense(jobs, step)
            return
        weight_norms, gradient_norms = (PieceNorms(len(jobs), jobs[0].weight.device) for _ in range(2))
        for block in measured_blocks(jobs, self.state_names):
            weight_norms.add(block.jobs, block.weights)
            gradient_norms.add(block.jobs, block.gradients)
        factor = self._factor(weight_norms.result(), gradient_norms.result(), step)
        for block in measured_blocks(jobs, self.state_names):
            self._descend(block, factor, step)

    def _update_rows(self, job: Job, gradient: RowSparse, step: Step) -> None:
        if not self.lazy_update:
            super()._update_rows(job, gradient, step)
            return
        dtype = computing_dtype(job.weight.dtype)
        weight_norm, gradient_norm = (
            tensor.to(dtype).norm().double()[None] for tensor in (job.target, gradient.values)
        )
        factor = self._factor(weight_norm, gradient_norm, step)
        for _, block in chosen_row_blocks(job, gradient.indices, gradient.values, self.state_names):
            self._descend(block, factor, step)

    def _descend(self, block: Block, factor: Tensor, step: Step) -> None:
        working = step.coupled_list(block.gradients, block.weights)
        change = multiplied(working, factor * -step.rate, block.jobs)
        if self.momentum:
            momenta = block.states["momentum"]
            torch._foreach_mul_(momenta, self.momentum)
            torch._foreach_add_(momenta, change)
            change = momenta
        torch._foreach_add_(block.weights, change)
