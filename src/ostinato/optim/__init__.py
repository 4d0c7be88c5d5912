"""Optimizers by name, parameter groups, clipping, warm-up, and optimizer state by parameter name."""

from __future__ import annotations

from ostinato.optim.build import apply_updatable, build_optimizer, optimizer_names, set_learning_rate
from ostinato.optim.clipping import GradientClipper
from ostinato.optim.named_state import (
    OptimizerStateReport,
    load_optimizer_state_by_name,
    optimizer_state_by_name,
)
from ostinato.optim.warm_up import warm_up_factor

__all__ = [
    "GradientClipper",
    "OptimizerStateReport",
    "apply_updatable",
    "build_optimizer",
    "load_optimizer_state_by_name",
    "optimizer_names",
    "optimizer_state_by_name",
    "set_learning_rate",
    "warm_up_factor",
]
