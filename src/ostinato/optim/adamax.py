"""Adamax (Kingma and Ba, 2015, section 7.1): Adam with the largest gradient in place of the mean square."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ostinato.config import OptimizerOptions


def build_adamax(groups: list[dict[str, Any]], options: OptimizerOptions) -> torch.optim.Adamax:
    """Make Adamax for the given groups. Its weight decay is coupled."""
    return torch.optim.Adamax(
        groups,
        lr=options.learning_rate,
        betas=(options.ada_beta_1, options.ada_beta_2),
        eps=10.0**options.epsilon_exponent,
    )
