"""RMSprop (Hinton, 2012): each gradient is divided by the root of its own mean square."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ostinato.config import OptimizerOptions


def build_rms_prop(groups: list[dict[str, Any]], options: OptimizerOptions) -> torch.optim.RMSprop:
    """Make RMSprop for the given groups, without momentum, averaging squares over about a hundred updates.

    Its weight decay is coupled. The betas of the options are not for it.
    """
    return torch.optim.RMSprop(groups, lr=options.learning_rate, alpha=0.99, eps=10.0**options.epsilon_exponent)
