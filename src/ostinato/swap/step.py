"""From a batch to gradients: what one update of a swap model computes, without the optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ostinato.swap.losses import SideLoss, SwapLoss
from ostinato.swap.models import SwapModel


@dataclass(frozen=True)
class StepLosses:
    """The losses of one batch, detached, on the device.

    :param total: the sum over sides.
    :param sides: side name to its loss.
    """

    total: Tensor
    sides: dict[str, SideLoss]


def training_step(
    model: SwapModel,
    loss: SwapLoss,
    inputs: Tensor,
    targets: Sequence[Tensor],
    masks: Mapping[str, Sequence[Tensor]],
    *,
    precision: torch.dtype | None = None,
    scale: float | Tensor = 1.0,
) -> StepLosses:
    """Compute the losses of a batch and add their gradients to the parameters'.

    Pictures stay bytes until here.

    :param model: in training mode, on the device of the batch.
    :param loss: on the same device.
    :param inputs: (sides, batch, h, w, 3), uint8, RGB, sides in the model's order.
    :param targets: for each face output (sides, batch, H, W, 3), uint8, RGB.
    :param masks: ``face``, ``eye``, ``mouth``: for each face output (sides, batch, H, W, 1), uint8.
    :param precision: run the model under autocast in this type; None for float32.
    :param scale: a factor on the loss that is differentiated (1/k for the k batches of one update, or the factor of a
        loss scaler); the losses returned are without it.
    """
    faces = _floats(inputs)
    real = [_floats(target) for target in targets]
    weights = {name: [_floats(mask) for mask in sizes] for name, sizes in masks.items()}
    with torch.autocast(inputs.device.type, dtype=precision, enabled=precision is not None):
        predictions = model(faces)
    sides: dict[str, SideLoss] = {}
    for index, side in enumerate(model.sides):
        sides[side] = loss(
            predictions[index],
            [target[index] for target in real],
            {name: [mask[index] for mask in sizes] for name, sizes in weights.items()},
        )
    total = torch.stack([side.total for side in sides.values()]).sum()
    (total if isinstance(scale, float) and scale == 1.0 else total * scale).backward()
    return StepLosses(
        total.detach(),
        {
            name: SideLoss(side.total.detach(), side.weighted, side.unweighted, side.mask)
            for name, side in sides.items()
        },
    )


def _floats(images: Tensor) -> Tensor:
    """(sides, batch, H, W, C), uint8, to (sides, batch, C, H, W), float32, 0..1, in channels-last memory."""
    return images.permute(0, 1, 4, 2, 3) / 255
