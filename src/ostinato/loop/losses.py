"""Losses by name, whichever way they were returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ostinato.errors import ArgumentTypeError, ArgumentValueError


def named_losses(result: Any, owner: str, *, advice: str) -> dict[str, torch.Tensor]:
    """The losses that a model or a loss function has returned, by name; ``main`` is the one to back-propagate.

    :param result: a tensor, which is ``main``, or a mapping of tensors; where ``main`` is missing, it is their sum.
    :param owner: who returned it, for the message.
    :param advice: what to do if it is neither.
    :raises ArgumentTypeError: for anything else, and for a mapping that is empty.
    :raises ArgumentValueError: for a tensor that is not one number.
    """
    if isinstance(result, torch.Tensor):
        return {"main": _one_number(result, f"{owner} returned", advice)}
    if not isinstance(result, Mapping) or not result:
        empty = "an empty " if isinstance(result, Mapping) else ""
        raise ArgumentTypeError(f"{owner} returned {empty}{type(result).__name__}, not a loss.", advice=advice)
    losses = dict(result)
    # What is not back-propagated may be anything that can be reported.
    for name in ("main",) if "main" in losses else losses:
        loss = losses[name]
        if not isinstance(loss, torch.Tensor):
            raise ArgumentTypeError(
                f"{owner} returned {loss!r} as {name!r}, which is no tensor and cannot be back-propagated.",
                advice="Name the tensor to back-propagate 'main', and what is only reported anything else.",
                name=name,
            )
        losses[name] = _one_number(loss, f"{owner} returned, as {name!r},", advice)
    if "main" not in losses:
        losses["main"] = torch.stack([loss.reshape(()) for loss in losses.values()]).sum()
    return losses


def _one_number(loss: torch.Tensor, who: str, advice: str) -> torch.Tensor:
    if loss.numel() != 1:
        raise ArgumentValueError(
            f"{who} a tensor of shape {tuple(loss.shape)}, and a loss is one number.",
            advice=f"Take its mean, or make a loss of it. {advice}",
            shape=tuple(loss.shape),
        )
    return loss
