"""Which parameters decay and which do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.nn import Parameter

DECAY = "decay"
NO_DECAY = "no decay"


def is_decayed(name: str, parameter: Parameter) -> bool:
    """Tell whether weight decay acts on a parameter: not on biases, gains, offsets and scalars."""
    return parameter.ndim > 1 and not name.endswith("bias")


def decay_groups(named_parameters: Iterable[tuple[str, Parameter]], weight_decay: float) -> list[dict[str, Any]]:
    """Sort trainable parameters into two optimizer groups, always both, the decayed ones first.

    :param named_parameters: pairs of name and parameter; frozen parameters are passed over.
    :param weight_decay: the decay of the first group; the second has 0.
    :returns: two groups with the keys ``params``, ``weight_decay`` and ``group`` (``"decay"`` or ``"no decay"``),
        which tells later readers which is which. The order within a group is the order given.
    """
    decayed: list[Parameter] = []
    kept: list[Parameter] = []
    for name, parameter in named_parameters:
        if parameter.requires_grad:
            (decayed if is_decayed(name, parameter) else kept).append(parameter)
    return [
        {"params": decayed, "weight_decay": weight_decay, "group": DECAY},
        {"params": kept, "weight_decay": 0.0, "group": NO_DECAY},
    ]
