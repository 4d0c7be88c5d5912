"""What can be asked of a batch, whatever its shape: a tensor, or mappings and sequences of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def batch_size(batch: Any) -> int | None:
    """The first dimension of the first tensor found; ``None`` when there is none."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else None
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    for part in parts:
        size = batch_size(part)
        if size is not None:
            return size
    return None


def call_with_batch(function: Callable[..., Any], batch: Any) -> Any:
    """Call a model with a batch: a sequence becomes positional arguments, a mapping keywords, anything else one."""
    if isinstance(batch, Mapping):
        return function(**batch)
    if isinstance(batch, list | tuple):
        return function(*batch)
    return function(batch)


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch with all its tensors on a device; other values are kept as they are."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: to_device(part, device) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a named tuple takes its fields one by one
        return type(batch)(*(to_device(part, device) for part in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(part, device) for part in batch)
    return batch
