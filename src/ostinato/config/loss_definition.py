"""Whether two losses may be compared: the definition of a run's loss as a short text."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ostinato.config.swap import SwapOptions


def loss_definition(options: SwapOptions) -> str:
    """Sixteen hexadecimal digits that differ when losses of one run cannot be compared with those of another.

    Loss functions, their weights, masks and multipliers count, as far as they have an effect; the "best" state of a run
    is judged anew when the digits change.

    :param options: the effective options.
    """
    loss, mask = options.loss, options.mask
    weights: dict[str, int] = {loss.loss_function: 100}
    for function, weight in (
        (loss.loss_function_2, loss.loss_weight_2),
        (loss.loss_function_3, loss.loss_weight_3),
        (loss.loss_function_4, loss.loss_weight_4),
    ):
        if function != "none" and weight:
            weights[function] = weights.get(function, 0) + weight
    definition: dict[str, Any] = {"weights": weights}
    if loss.penalized_mask_loss:
        definition["multipliers"] = [loss.eye_multiplier, loss.mouth_multiplier]
    if mask.learn_mask:
        definition["mask_loss"] = loss.mask_loss_function
    if loss.penalized_mask_loss or mask.learn_mask:
        definition["mask"] = [
            loss.penalized_mask_loss,
            mask.learn_mask,
            mask.mask_type,
            mask.mask_dilation,
            mask.mask_blur_kernel,
            mask.mask_threshold,
        ]
    text = json.dumps(definition, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
