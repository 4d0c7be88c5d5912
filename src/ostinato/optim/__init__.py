"""Optimizers by name, parameter groups, clipping, warm-up, and optimizer state by parameter name.

Three rooms of their own serve the parameter trainer and its stores: :mod:`ostinato.optim.rules` (update rules, also for
row-sparse gradients, and torch's optimizers in their place), :mod:`ostinato.optim.rate_schedules` and
:mod:`ostinato.optim.mxnet_files`.
"""

from __future__ import annotations

from ostinato.optim.build import apply_updatable, build_optimizer, optimizer_names, set_learning_rate
from ostinato.optim.clipping import GradientClipper
from ostinato.optim.named_state import (
    OptimizerStateReport,
    load_optimizer_state_by_name,
    optimizer_state_by_name,
)
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.warm_up import warm_up_factor

__all__ = [
    "GradientClipper",
    "OptimizerStateReport",
    "RowSparse",
    "apply_updatable",
    "build_optimizer",
    "load_optimizer_state_by_name",
    "optimizer_names",
    "optimizer_state_by_name",
    "set_learning_rate",
    "warm_up_factor",
]
