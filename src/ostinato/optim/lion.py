"""Lion (Chen and others, 2023, arXiv:2302.06675): every number moves by the same amount, and only the direction is
learned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ostinato.optim.block_optimizer import BlockOptimizer
from ostinato.optim.rules.blocks import Block

if TYPE_CHECKING:
    from ostinato.config import OptimizerOptions


class Lion(BlockOptimizer):
    """``w = w*(1 - rate*decay)``, ``w = w - rate*sign(b1*m + (1-b1)*g)``, ``m = b2*m + (1-b2)*g``.

    One tensor of state for each parameter, half as much as Adam.

    :param groups: parameters or parameter groups.
    :param lr: the rate; a third to a tenth of what suits Adam.
    :param betas: b1 and b2.
    :param weight_decay: decoupled; three to ten times of what suits AdamW, since the rate multiplies it.
    """

    state_names: ClassVar[tuple[str, ...]] = ("exp_avg",)
    counts_updates: ClassVar[bool] = False

    def __init__(
        self,
        groups: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def _update(self, block: Block, group: dict[str, Any], count: int) -> None:
        rate, decay = group["lr"], group["weight_decay"]
        beta1, beta2 = group["betas"]
        means = block.states["exp_avg"]
        if decay:
            torch._foreach_mul_(block.weights, 1 - rate * decay)
        directions = torch._foreach_lerp(means, block.gradients, 1 - beta1)
        torch._foreach_sign_(directions)
        torch._foreach_add_(block.weights, directions, alpha=-rate)
        torch._foreach_lerp_(means, block.gradients, 1 - beta2)


def build_lion(groups: list[dict[str, Any]], options: OptimizerOptions) -> Lion:
    """Make Lion for the given groups. The epsilon of the options is not for it."""
    return Lion(groups, lr=options.learning_rate, betas=(options.ada_beta_1, options.ada_beta_2))
