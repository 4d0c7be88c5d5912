"""Gradient clipping: by value, by norm, by global norm, and by a percentile of past norms (AutoClip)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ostinato.errors import ArgumentValueError

if TYPE_CHECKING:
    from ostinato.config import OptimizerOptions

METHODS = ("none", "value", "norm", "global_norm", "autoclip")

# Keeps a gradient of norm 0 from being divided by 0.
_EPSILON = 1e-6

_INITIAL_CAPACITY = 1024


class GradientClipper:
    """Limits gradients before the optimizer sees them.

    ========================= =========================================================================================
    ``none``                  nothing is done
    ``value``                 every entry is limited to -v..v
    ``norm``                  every tensor alone is scaled down to the 2-norm v
    ``global_norm``           all tensors together are scaled by min(1, v / (n + 1e-6)); n is the 2-norm over all
    ``autoclip``              as ``global_norm``, with the int(10 v)-th percentile of the norms seen so far for v
                              (Seetharaman et al., 2020, arXiv:2007.14469). The present norm counts; a norm that is
                              not finite neither counts nor changes anything
    ========================= =========================================================================================

    Nothing here waits for the device: AutoClip's history lives there too. It is state, since the next threshold depends
    on it; up to 8 bytes per remembered update.

    :param method: one of the above.
    :param value: v, 0 or more.
    :param history: how many norms AutoClip remembers, the oldest drop out; 0 remembers all.
    """

    def __init__(self, method: str = "none", value: float = 1.0, history: int = 10_000) -> None:
        if method not in METHODS:
            raise ArgumentValueError(
                f"There is no gradient clipping called {method!r}.", advice=f"Choose one of: {', '.join(METHODS)}."
            )
        if value < 0 or history < 0:
            raise ArgumentValueError(
                f"Gradient clipping has the value {value} and the history {history}.", advice="Both must be 0 or more."
            )
        self.method = method
        self.value = value
        self.history = history
        self._norms: Tensor | None = None  # a ring; entries that were never written hold infinity
        self._count: Tensor | None = None  # norms ever remembered
        self._calls = 0  # an upper bound of the count that the host knows without asking the device

    @classmethod
    def from_options(cls, options: OptimizerOptions) -> GradientClipper:
        """Make the clipper that the optimizer options ask for."""
        return cls(options.gradient_clipping, options.clipping_value, options.autoclip_history)

    @torch.no_grad()
    def clip(self, parameters: Iterable[Parameter]) -> Tensor | None:
        """Limit the gradients of the given parameters in place; parameters without gradient are passed over.

        :returns: the 2-norm over all gradients before clipping, on their device, for ``global_norm`` and ``autoclip``;
            None for the others, which have no use for it.
        """
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if not gradients or self.method == "none":
            return None
        if self.method == "value":
            torch._foreach_clamp_min_(gradients, -self.value)
            torch._foreach_clamp_max_(gradients, self.value)
            return None
        norms = torch._foreach_norm(gradients)
        if self.method == "norm":
            factors = [torch.where(norm > self.value, self.value / norm, torch.ones_like(norm)) for norm in norms]
            torch._foreach_mul_(gradients, factors)
            return None
        norm = torch.linalg.vector_norm(torch.stack([n.to(norms[0].device) for n in norms]))
        if self.method == "global_norm":
            factor = (self.value / (norm + _EPSILON)).clamp(max=1.0)
        else:
            factor = self._autoclip_factor(norm)
        torch._foreach_mul_(gradients, factor)
        return norm

    def state_dict(self) -> dict[str, Any]:
        """The remembered norms, oldest first, as ``{"norms": tensor}``; ``{}`` for methods without memory."""
        if self.method != "autoclip":
            return {}
        return {"norms": self._remembered()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the norms of a saved state over, the newest ones if it holds more than are to be remembered."""
        norms = state.get("norms")
        self._norms = self._count = None
        self._calls = 0
        if self.method != "autoclip" or norms is None:
            return
        norms = torch.as_tensor(norms, dtype=torch.float64)
        if self.history:
            norms = norms[-self.history :]
        self._calls = len(norms)
        if self._calls:
            self._norms = _padded(norms, self._capacity())
            self._count = torch.tensor(self._calls, dtype=torch.int64)

    def _capacity(self) -> int:
        if self.history:
            return self.history
        capacity = _INITIAL_CAPACITY
        while capacity < self._calls + 1:
            capacity *= 2
        return capacity

    def _remembered(self) -> Tensor:
        if self._norms is None or self._count is None:
            return torch.empty(0, dtype=torch.float64)
        count = int(self._count)
        norms = self._norms.cpu().double()
        if count > len(norms):
            start = count % len(norms)
            return torch.cat([norms[start:], norms[:start]])
        return norms[:count].clone()

    def _autoclip_factor(self, norm: Tensor) -> Tensor:
        if norm.device.type != "mps":
            norm = norm.double()
        if self._norms is None or self._count is None:
            self._norms = norm.new_full((self._capacity(),), float("inf"))
            self._count = torch.zeros((), dtype=torch.int64, device=norm.device)
        elif len(self._norms) < self._capacity():
            self._norms = _padded(self._norms, self._capacity())
        norms = self._norms = self._norms.to(norm)
        count = self._count = self._count.to(norm.device)
        self._calls += 1

        is_finite = torch.isfinite(norm)
        place = (count % len(norms)).reshape(1)
        norms.scatter_(0, place, torch.where(is_finite, norm, norms[place]))
        count += is_finite
        filled = count.clamp(max=len(norms))
        # The entries that were never written are infinite and sort behind all others.
        ordered = norms.sort().values
        last = (filled - 1).clamp(min=0)
        rank = last.to(norm.dtype) * (int(10 * self.value) / 100)
        below = rank.floor().long()
        above = torch.minimum(below + 1, last)
        share = rank - below
        threshold = ordered[below] + share * (ordered[above] - ordered[below])
        factor = (threshold / (norm + _EPSILON)).clamp(max=1.0)
        return torch.where(is_finite, factor, torch.ones_like(factor))


def _padded(norms: Tensor, capacity: int) -> Tensor:
    padded = norms.new_full((capacity,), float("inf"))
    padded[: len(norms)] = norms
    return padded
