"""Where torch's fused optimizer kernels can be used."""

from __future__ import annotations

from typing import Any

import torch

_DEVICES = frozenset({"cpu", "cuda", "mps", "xpu"})


def can_be_fused(groups: list[dict[str, Any]]) -> bool:
    """Tell whether all arithmetic of one update of Adam or AdamW can run in one kernel.

    Such a kernel reads and writes every value once. On a CPU that is what the step costs: seven passes over memory
    instead of about twenty.

    :param groups: parameter groups, as :func:`~ostinato.optim.groups.decay_groups` makes them.
    """
    parameters = [parameter for group in groups for parameter in group["params"]]
    return all(p.device.type in _DEVICES and torch.is_floating_point(p) for p in parameters)
