"""AdaBelief (Zhuang and others, 2020, arXiv:2010.07468): large steps where gradients come as expected, small ones where
they surprise."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ostinato.optim.block_optimizer import BlockOptimizer
from ostinato.optim.rules.blocks import Block

if TYPE_CHECKING:
    from ostinato.config import OptimizerOptions

_log = logging.getLogger(__name__)

_LEAST_LENGTH = 5.0
_LARGE_EPSILON = 1e-10


class AdaBelief(BlockOptimizer):
    """AdaBelief with decoupled weight decay, rectified as RAdam is (Liu and others, 2019, arXiv:1908.03265).

    ``w = w*(1 - rate*decay)``, ``m = b1*m + (1-b1)*g``, ``s = b2*s + (1-b2)*(g-m)^2 + eps`` with the new m, then

    ``w = w - rate*k*m/(sqrt(s) + eps)``, k from :func:`rectification`; while there is none (the first five updates at
    b2 = 0.999), ``w = w - rate*m/(1-b1^t)``.

    eps stays in s and adds up there to eps/(1-b2), so that it wants to be far smaller than Adam's: 1e-16.

    There is no AMSGrad form: the published one keeps a maximum that its rectified step never looks at.

    :param groups: parameters or parameter groups.
    :param lr: the rate.
    :param betas: b1 and b2.
    :param eps: see above.
    :param weight_decay: decoupled.
    """

    state_names: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_var")
    counts_updates: ClassVar[bool] = True

    def __init__(
        self,
        groups: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-16,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _update(self, block: Block, group: dict[str, Any], count: int) -> None:
        rate, decay, epsilon = group["lr"], group["weight_decay"], group["eps"]
        beta1, beta2 = group["betas"]
        means, variances = block.states["exp_avg"], block.states["exp_avg_var"]
        if decay:
            torch._foreach_mul_(block.weights, 1 - rate * decay)
        torch._foreach_lerp_(means, block.gradients, 1 - beta1)
        surprises = torch._foreach_sub(block.gradients, means)
        torch._foreach_mul_(variances, beta2)
        torch._foreach_addcmul_(variances, surprises, surprises, value=1 - beta2)
        torch._foreach_add_(variances, epsilon)
        factor = rectification(count, beta1, beta2)
        if factor is None:
            torch._foreach_add_(block.weights, means, alpha=-rate / (1 - beta1**count))
            return
        divisors = torch._foreach_sqrt(variances)
        torch._foreach_add_(divisors, epsilon)
        torch._foreach_addcdiv_(block.weights, means, divisors, value=-rate * factor)


def rectification(count: int, beta1: float, beta2: float) -> float | None:
    """The factor on the rate that makes up for how few gradients the variance has seen, bias corrections included.

    With R = 2/(1-b2) - 1 and r = R - 2*t*b2^t/(1-b2^t), the length of the average:
    ``sqrt((1-b2^t) * (r-4)/(R-4) * (r-2)/r * R/(R-2)) / (1-b1^t)``.

    :param count: t, 1 at the first update.
    :returns: the factor; None while r is below 5 and the variance says nothing.
    """
    kept = beta2**count
    limit = 2 / (1 - beta2) - 1
    length = limit - 2 * count * kept / (1 - kept)
    if length < _LEAST_LENGTH:
        return None
    ratio = (length - 4) / (limit - 4) * (length - 2) / length * limit / (limit - 2)
    return math.sqrt((1 - kept) * ratio) / (1 - beta1**count)


def build_adabelief(groups: list[dict[str, Any]], options: OptimizerOptions) -> AdaBelief:
    """Make AdaBelief for the given groups. AMSGrad is not for it.

    A warning says so when epsilon is so large that the steps become tiny.
    """
    epsilon, betas = 10.0**options.epsilon_exponent, (options.ada_beta_1, options.ada_beta_2)
    if epsilon > _LARGE_EPSILON:
        _log.warning(
            "adabelief adds epsilon up to %.1g, so gradients much smaller than %.1g hardly move the model: set "
            "optimizer.epsilon_exponent to about -16 (it is %d).",
            epsilon / (1 - betas[1]),
            math.sqrt(epsilon / (1 - betas[1])),
            options.epsilon_exponent,
        )
    return AdaBelief(groups, lr=options.learning_rate, betas=betas, eps=epsilon)
