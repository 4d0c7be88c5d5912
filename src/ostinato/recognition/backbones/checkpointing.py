"""Activation checkpointing: keep only what goes into a block and compute the rest of it again for the gradient."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


@torch.compiler.disable(recursive=False)
def checkpointed(blocks: Iterable[nn.Module], values: Tensor) -> Tensor:
    """Run blocks one after the other and keep only ``values`` for the backward pass.

    The result, the gradients, the running statistics and the random numbers drawn are those of a plain run, to the last
    bit. It costs a second forward pass of the blocks.

    A compiled network leaves its graph here: the compiler would count the second pass in the running statistics.

    :param blocks: modules that take and give one tensor.
    :param values: what goes into the first one.
    """
    blocks = tuple(blocks)

    def run(values: Tensor) -> Tensor:
        for block in blocks:
            values = block(values)
        return values

    return checkpoint(run, values, use_reentrant=False, context_fn=lambda: (nullcontext(), _statistics_at_rest(blocks)))


@contextmanager
def _statistics_at_rest(blocks: Iterable[nn.Module]) -> Generator[None, None, None]:
    """Let batch norms leave their running statistics alone: the first pass has counted this batch already."""
    norms = [module for block in blocks for module in block.modules() if isinstance(module, _BatchNorm)]
    before = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        # Taking the statistics away would change what is kept for the backward pass, which the checkpoint compares.
        norm.momentum = 0.0
        norm.num_batches_tracked = None
    try:
        yield
    finally:
        for norm, momentum, batches in before:
            norm.momentum = momentum
            norm.num_batches_tracked = batches
