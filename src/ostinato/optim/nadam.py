"""NAdam (Dozat, 2016): Adam that looks one step ahead along its momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ostinato.config import OptimizerOptions


def build_nadam(groups: list[dict[str, Any]], options: OptimizerOptions) -> torch.optim.NAdam:
    """Make NAdam for the given groups. Its weight decay is coupled, and its momentum warms up at torch's own pace."""
    return torch.optim.NAdam(
        groups,
        lr=options.learning_rate,
        betas=(options.ada_beta_1, options.ada_beta_2),
        eps=10.0**options.epsilon_exponent,
    )
