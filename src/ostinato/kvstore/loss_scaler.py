"""Loss scaling for float16: a factor that follows whether gradients stay finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import ArgumentValueError
from ostinato.optim.argument_checks import require_mapping, require_number
from ostinato.optim.row_sparse_gradient import RowSparse


class LossScaler:
    """Halves the scale after a step whose gradients were not finite, doubles it after a number of clean ones.

    A new scale is used by the very next loss. Give it to :class:`~ostinato.kvstore.ParameterTrainer` as
    ``trainer.loss_scaler``; the trainer asks all ranks whether a step was clean, so they scale alike.

    :param loss_scale: the first scale.
    :param maximum: the scale does not rise above it.
    :param minimum: the scale does not fall below it; without a floor, a model whose gradients are never finite would
        drive the scale to zero, and its gradients with it.
    :param window: clean steps before the scale rises.
    :param factor: of each rise and fall, above 1.
    """

    def __init__(
        self,
        loss_scale: float = 2.0**16,
        *,
        maximum: float = 2.0**24,
        minimum: float = 1.0,
        window: int = 2000,
        factor: float = 2.0,
    ) -> None:
        numbers = {"loss_scale": loss_scale, "maximum": maximum, "minimum": minimum, "window": window, "factor": factor}
        for name, value in numbers.items():
            require_number(name, value)
        if not 0 < minimum <= loss_scale <= maximum < math.inf:
            raise ArgumentValueError(
                f"A loss scale of {loss_scale:g} between {minimum:g} and {maximum:g} makes no sense.",
                advice="Use 0 < minimum <= loss_scale <= maximum.",
            )
        if window < 1 or factor <= 1:
            raise ArgumentValueError(
                f"A window of {window} steps and a factor of {factor:g} make no sense.",
                advice="The window is at least 1, the factor above 1.",
            )
        self.loss_scale = float(loss_scale)
        self.maximum, self.minimum = float(maximum), float(minimum)
        self.window, self.factor = window, float(factor)
        self.clean_steps = 0
        """Steps with finite gradients since the scale last changed."""

    def update(self, overflow: bool) -> None:
        """Take note of one step, and change the scale if it is time.

        :param overflow: some gradient was not finite.
        """
        if overflow:
            self.loss_scale = max(self.minimum, self.loss_scale / self.factor)
            self.clean_steps = 0
            return
        self.clean_steps += 1
        if self.clean_steps >= self.window:
            self.loss_scale = min(self.maximum, self.loss_scale * self.factor)
            self.clean_steps = 0

    def state_dict(self) -> dict[str, Any]:
        """Scale and counter; the limits are options and not state."""
        return {"loss_scale": self.loss_scale, "clean_steps": self.clean_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; the scale is brought between this scaler's limits."""
        require_mapping("The state of a loss scaler", state, "Give what state_dict() gave.")
        for part in ("loss_scale", "clean_steps"):
            if part not in state:
                raise ArgumentValueError(
                    f"The state of a loss scaler has no part {part!r}.", advice="Give what state_dict() gave."
                )
            require_number(part, state[part])
        self.loss_scale = min(self.maximum, max(self.minimum, float(state["loss_scale"])))
        self.clean_steps = int(state["clean_steps"])


def all_finite(values: Iterable[Tensor | RowSparse]) -> bool:
    """True when no element is a NaN or an infinity. Makes the host wait for the device, once for all values."""
    flags: list[Tensor] = []
    for value in values:
        tensor = value.values if isinstance(value, RowSparse) else value
        if tensor.layout == torch.sparse_coo:
            tensor = tensor._values()
        if tensor.is_floating_point() or tensor.is_complex():
            flags.append(torch.isfinite(tensor).all())
    if not flags:
        return True
    return bool(torch.stack([flag.to(flags[0].device, non_blocking=True) for flag in flags]).all())
