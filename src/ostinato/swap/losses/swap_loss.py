"""The loss of one side: several functions, weighted by the masks of face, eyes and mouth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from ostinato.errors import ArgumentValueError
from ostinato.swap.losses.names import build_loss

if TYPE_CHECKING:
    from ostinato.config import LossOptions
    from ostinato.swap.losses.image_loss import ImageLoss
    from ostinato.swap.losses.lpips_weights import LpipsWeights


@dataclass(frozen=True)
class SideLoss:
    """The loss of one side, 0-dimensional tensors on the device; nothing here has waited for it.

    :param total: what is differentiated: all weighted values and the mask's loss.
    :param weighted: for each face output, smallest first: function name to value times the function's weight.
    :param unweighted: the same without the function's weight; masks and multipliers are in it.
    :param mask: the loss of the learned mask, if there is one.
    """

    total: Tensor
    weighted: tuple[dict[str, Tensor], ...]
    unweighted: tuple[dict[str, Tensor], ...]
    mask: Tensor | None


class SwapLoss(nn.Module):
    """Compares the faces that one side's decoder drew with the real ones.

    A function that gives a map of the face is weighed place by place:

        W = M (1 + (e - 1) E) (1 + (m - 1) O)

    M, E, O the masks of face, eyes and mouth, e and m the multipliers: a mistake in the eyes counts e times as much.
    The value is the mean of W times the map over *all* pixels, masked or not. A function f that gives one number for
    each picture is given pictures that were cut out:

        value = f(T M, P M) + (e - 1) f(T M E, P M E) + (m - 1) f(T M O, P M O)

    which weighs the same places the same way, and costs up to three calls. In both cases, what lies outside the face
    does not matter. Without ``penalized_mask_loss`` all masks and multipliers are left out.

    The values, times the functions' weights, are summed over functions and outputs. A learned mask is compared with M
    by a function of its own, with weight 1, unmasked.

    Memory of a step: that of each function (see there), for each output, plus one map for each function that is
    weighed by masks, and two for each cut-out.

    :param options: the functions, their weights in percent (the first has 100), and the multipliers. A function named
        twice counts with the sum of its weights; ``none`` and weight 0 leave a function out.
    :param learn_mask: the last prediction is a mask.
    :param output_sizes: sides of the face outputs, pixels, smallest first.
    :param lpips_weights: for each lpips loss its weights, as :func:`read_lpips_weights` gives them.
    :raises ArgumentValueError: a function is unknown, an output is too small for one, or the weights are missing.
    """

    def __init__(
        self,
        options: LossOptions,
        learn_mask: bool,
        output_sizes: Sequence[int],
        lpips_weights: Mapping[str, LpipsWeights] | None = None,
    ) -> None:
        super().__init__()
        self.weights = function_weights(options)
        self.learn_mask = learn_mask
        self.output_sizes = tuple(output_sizes)
        self.penalized = options.penalized_mask_loss
        self.eye_multiplier = options.eye_multiplier
        self.mouth_multiplier = options.mouth_multiplier
        self.functions = nn.ModuleDict({name: build_loss(name, output_sizes, lpips_weights) for name in self.weights})
        self.mask_function = build_loss(options.mask_loss_function, ())

    def forward(
        self, predictions: Sequence[Tensor], targets: Sequence[Tensor], masks: Mapping[str, Sequence[Tensor]]
    ) -> SideLoss:
        """Compare one side's outputs with the targets.

        :param predictions: the faces, smallest first, each (N, 3, H, W), float, 0..1; then, with ``learn_mask``, the
            mask (N, 1, H, W) in the size of the last face.
        :param targets: the real faces, one for each face output, (N, 3, H, W), float32, 0..1.
        :param masks: ``face``, ``eye``, ``mouth``: one mask for each face output, (N, 1, H, W), float32, 0..1. The face
            mask must be there with ``penalized_mask_loss`` or ``learn_mask``; eyes and mouth where there are landmarks.
        :raises ArgumentValueError: the number of tensors is not that of the outputs, or the face mask is missing.
        """
        faces = len(self.output_sizes)
        if len(predictions) != faces + self.learn_mask or len(targets) != faces:
            raise ArgumentValueError(
                f"The loss was made for {faces} faces{' and a mask' if self.learn_mask else ''}, and was given "
                f"{len(predictions)} predictions and {len(targets)} targets.",
                advice="Give the outputs of one side of the model the loss was made for.",
            )
        if (self.penalized or self.learn_mask) and "face" not in masks:
            raise ArgumentValueError(
                "The loss needs the mask of the face, and none was given.",
                advice="Choose a mask_type, or switch penalized_mask_loss and learn_mask off.",
            )
        # Losses are differences of nearly equal numbers: half precision would only measure its own rounding.
        with torch.autocast(targets[0].device.type, enabled=False):
            unweighted = tuple(
                self._face_values(predictions[index].float(), targets[index], masks, index) for index in range(faces)
            )
            weighted = tuple({name: value * self.weights[name] for name, value in v.items()} for v in unweighted)
            parts = [value for values in weighted for value in values.values()]
            mask = None
            if self.learn_mask:
                mask = self.mask_function(masks["face"][-1], predictions[-1].float()).mean()
                parts.append(mask)
            total = torch.stack(parts).sum() if len(parts) > 1 else parts[0]
        return SideLoss(
            total,
            tuple({name: value.detach() for name, value in values.items()} for values in weighted),
            tuple({name: value.detach() for name, value in values.items()} for values in unweighted),
            None if mask is None else mask.detach(),
        )

    def _face_values(
        self, prediction: Tensor, target: Tensor, masks: Mapping[str, Sequence[Tensor]], index: int
    ) -> dict[str, Tensor]:
        # Several functions read both, pixel by pixel: bring them into one layout once.
        prediction, target = prediction.contiguous(), target.contiguous()
        regions = self._regions(masks, index)
        weight_map = _weight_map(regions)
        values = {}
        for name, function in self.functions.items():
            if not regions:
                values[name] = function(target, prediction).mean()
            elif cast("ImageLoss", function).spatial:
                values[name] = (function(target, prediction) * weight_map).mean()
            else:
                values[name] = _of_cut_outs(function, target, prediction, regions)
        return values

    def _regions(self, masks: Mapping[str, Sequence[Tensor]], index: int) -> list[tuple[Tensor, int]]:
        """The mask of the face with 1, then those of eyes and mouth, each with what it adds to that weight."""
        if not self.penalized:
            return []
        regions = [(masks["face"][index], 1)]
        for name, multiplier in (("eye", self.eye_multiplier), ("mouth", self.mouth_multiplier)):
            if multiplier != 1 and name in masks:
                regions.append((masks[name][index], multiplier - 1))
        return regions


def _weight_map(regions: Sequence[tuple[Tensor, int]]) -> Tensor | None:
    if not regions:
        return None
    weight_map = regions[0][0]
    for mask, extra in regions[1:]:
        weight_map = torch.addcmul(weight_map, weight_map, mask, value=extra)
    return weight_map


def _of_cut_outs(
    function: nn.Module, target: Tensor, prediction: Tensor, regions: Sequence[tuple[Tensor, int]]
) -> Tensor:
    face = regions[0][0]
    values = []
    for number, (mask, weight) in enumerate(regions):
        cut = mask if number == 0 else face * mask
        values.append(function(target * cut, prediction * cut).mean() * weight)
    return torch.stack(values).sum()


def function_weights(options: LossOptions) -> dict[str, float]:
    """The functions that count, in the order of the options, and how much each counts."""
    chosen = [
        (options.loss_function, 100),
        (options.loss_function_2, options.loss_weight_2),
        (options.loss_function_3, options.loss_weight_3),
        (options.loss_function_4, options.loss_weight_4),
    ]
    weights: dict[str, float] = {}
    for name, percent in chosen:
        if name == "none" or percent <= 0:
            continue
        weights[name] = weights.get(name, 0.0) + percent / 100
    return weights
