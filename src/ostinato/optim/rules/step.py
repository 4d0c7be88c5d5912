"""The numbers of one update, and the three ways to make the working gradient from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Step:
    """What one update of one weight is told; weights with equal steps are updated together.

    With g the gradient as the caller holds it, s ``rescale`` and c ``clip``, a rule works on one of:

    * bare: ``G = clip(s*g, c)``;
    * coupled: ``G = clip(s*g, c) + decay*w``;
    * clip-last: ``G = clip(s*g + decay*w, c)``.

    The caller's gradient is never changed. Numbers are double precision and meet the tensor's dtype in its arithmetic.
    """

    rate: float
    """Learning rate, multiplier included."""
    decay: float
    """Weight decay, multiplier included."""
    count: int
    """How many updates this weight has seen, this one included: 1 at the first."""
    rescale: float
    clip: float | None
    kind: Any = None
    """What else a rule tells weights apart by, see :meth:`Optimizer._kind`."""

    # --- one tensor, in the notation of the equations -----------------------------------------------------------

    def bare(self, gradient: Tensor) -> Tensor:
        """``clip(s*g, c)``, perhaps the gradient itself."""
        scaled = gradient if self.rescale == 1 else self.rescale * gradient
        return scaled if self.clip is None else scaled.clamp(-self.clip, self.clip)

    def coupled(self, gradient: Tensor, weight: Tensor) -> Tensor:
        """``clip(s*g, c) + decay*w``."""
        return self.bare(gradient) + self.decay * weight

    def clip_last(self, gradient: Tensor, weight: Tensor) -> Tensor:
        """``clip(s*g + decay*w, c)``."""
        summed = self.rescale * gradient + self.decay * weight
        return summed if self.clip is None else summed.clamp(-self.clip, self.clip)

    # --- lists of tensors ---------------------------------------------------------------------------------------

    def bare_list(self, gradients: list[Tensor]) -> list[Tensor]:
        """The bare form of each; the tensors may be the caller's own and must not be changed."""
        if self.rescale == 1 and self.clip is None:
            return gradients
        return _clip(list(torch._foreach_mul(gradients, self.rescale)), self.clip)

    def coupled_list(self, gradients: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        """The coupled form of each; the tensors may be the caller's own and must not be changed."""
        bare = self.bare_list(gradients)
        if self.decay == 0:
            return bare
        if bare is gradients:
            return list(torch._foreach_add(bare, weights, alpha=self.decay))
        torch._foreach_add_(bare, weights, alpha=self.decay)
        return bare

    def clip_last_list(self, gradients: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        """The clip-last form of each; the tensors may be the caller's own and must not be changed."""
        if self.decay == 0:
            return self.bare_list(gradients)
        summed = list(torch._foreach_mul(gradients, self.rescale))
        torch._foreach_add_(summed, weights, alpha=self.decay)
        return _clip(summed, self.clip)


def _clip(tensors: list[Tensor], limit: float | None) -> list[Tensor]:
    if limit is not None:
        torch._foreach_clamp_min_(tensors, -limit)
        torch._foreach_clamp_max_(tensors, limit)
    return tensors
