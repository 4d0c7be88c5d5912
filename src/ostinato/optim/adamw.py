"""AdamW (Loshchilov and Hutter, 2019): Adam whose weight decay shrinks the weights and leaves the moments alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ostinato.optim.fused import can_be_fused

if TYPE_CHECKING:
    from ostinato.config import OptimizerOptions


def build_adamw(groups: list[dict[str, Any]], options: OptimizerOptions) -> torch.optim.AdamW:
    """Make AdamW for the given groups, in one kernel where the device has one."""
    arguments: dict[str, Any] = {
        "lr": options.learning_rate,
        "betas": (options.ada_beta_1, options.ada_beta_2),
        "eps": 10.0**options.epsilon_exponent,
        "amsgrad": options.ada_amsgrad,
    }
    return torch.optim.AdamW(groups, fused=can_be_fused(groups), **arguments)
