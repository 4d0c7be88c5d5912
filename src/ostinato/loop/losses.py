"""Losses by name, whichever way they were returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ostinato.errors import ArgumentTypeError


def named_losses(result: Any, owner: str, *, advice: str) -> dict[str, torch.Tensor]:
    """The losses that a model or a loss function has returned, by name; ``main`` is the one to back-propagate.

    :param result: a tensor, which is ``main``, or a mapping of tensors; where ``main`` is missing, it is their sum.
    :param owner: who returned it, for the message.
    :param advice: what to do if it is neither.
    :raises ArgumentTypeError: for anything else, and for a mapping that is empty.
    """
    if isinstance(result, torch.Tensor):
        return {"main": result}
    if not isinstance(result, Mapping) or not result:
        raise ArgumentTypeError(f"{owner} returned {type(result).__name__}, not a loss.", advice=advice)
    losses = dict(result)
    if "main" not in losses:
        losses["main"] = torch.stack(list(losses.values())).sum()
    return losses
