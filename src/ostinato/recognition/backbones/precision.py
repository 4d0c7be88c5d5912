"""Which parts of a network are computed in half precision and which are not."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def half_section(dtype: torch.dtype | None, device: torch.device) -> AbstractContextManager[object]:
    """Compute what follows under autocast to ``dtype``; with None, as the caller has it."""
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def full_section(device: torch.device) -> AbstractContextManager[object]:
    """Compute what follows without autocast, also inside an autocast of the caller."""
    # Entered only where there is something to switch off: exporters write every such section into the graph.
    return torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else nullcontext()


def at_least_float32(values: Tensor) -> Tensor:
    """Cast half precision to float32 and leave float32 and float64 alone."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
