"""Gradient descent with noise of the size that makes its path a sample of the posterior."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ostinato.optim.rules.optimizer import Optimizer, State
from ostinato.optim.rules.registry import register
from ostinato.optim.rules.settings import Index
from ostinato.optim.rules.step import Step


@register
class SGLD(Optimizer):
    """``w = w - rate/2*G + sqrt(rate)*xi``, with G coupled and xi standard normal. (Welling and Teh, 2011.)

    The noise is a function of the seed, the weight's index and its count. Replicas of a weight therefore draw the same
    noise and stay equal, and a run that is continued draws what it would have drawn.

    :param seed: another seed, other noise.
    """

    default_learning_rate: ClassVar[float] = 0.1
    settings: ClassVar[tuple[str, ...]] = ("seed",)
    cut = "tensors"  # pieces of one weight would draw the same noise

    def __init__(self, *, seed: int = 0, **common: Any) -> None:
        super().__init__(**common)
        self.seed = seed

    def _kind(self, index: Index, state: State, count: int) -> Hashable:
        digest = hashlib.blake2b(repr((self.seed, index, count)).encode(), digest_size=7).digest()
        return int.from_bytes(digest, "little")

    def noise(self, weight: Tensor, seed: Any) -> Tensor:
        """Draw a standard normal number for every element."""
        generator = torch.Generator(weight.device).manual_seed(seed)
        return torch.randn(weight.shape, generator=generator, dtype=weight.dtype, device=weight.device)

    def _plain(self, weight: Tensor, gradient: Tensor, state: State, step: Step) -> None:
        noise = self.noise(weight, step.kind)
        weight.copy_(weight - step.rate / 2 * step.coupled(gradient, weight) + math.sqrt(step.rate) * noise)
