"""From options to an optimizer, and from changed options to an optimizer that is already at work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Parameter

from ostinato.errors import ArgumentValueError
from ostinato.optim.adabelief import build_adabelief
from ostinato.optim.adam import build_adam
from ostinato.optim.adamax import build_adamax
from ostinato.optim.adamw import build_adamw
from ostinato.optim.groups import DECAY, decay_groups
from ostinato.optim.lion import build_lion
from ostinato.optim.nadam import build_nadam
from ostinato.optim.rms_prop import build_rms_prop

if TYPE_CHECKING:
    from ostinato.config import OptimizerOptions

Builder = Callable[[list[dict[str, Any]], "OptimizerOptions"], torch.optim.Optimizer]

_BUILDERS: dict[str, Builder] = {
    "adabelief": build_adabelief,
    "adam": build_adam,
    "adamax": build_adamax,
    "adamw": build_adamw,
    "lion": build_lion,
    "nadam": build_nadam,
    "rms-prop": build_rms_prop,
}


def optimizer_names() -> tuple[str, ...]:
    """The names that :func:`build_optimizer` knows."""
    return tuple(_BUILDERS)


def build_optimizer(
    named_parameters: Iterable[tuple[str, Parameter]], options: OptimizerOptions
) -> torch.optim.Optimizer:
    """Make the optimizer that the options ask for.

    :param named_parameters: pairs of name and parameter, as ``model.named_parameters()`` gives them. Frozen
        parameters are left out.
    :param options: the optimizer options; ``epsilon_exponent`` n stands for an epsilon of 10^n.
    :returns: an optimizer with two groups: ``decay``, then ``no decay`` (see :mod:`ostinato.optim.groups`).
    :raises ArgumentValueError: the optimizer's name is unknown, or nothing is trainable.
    """
    builder = _BUILDERS.get(options.optimizer)
    if builder is None:
        raise ArgumentValueError(
            f"There is no optimizer called {options.optimizer!r}.",
            advice=f"Choose one of: {', '.join(optimizer_names())}.",
            optimizer=options.optimizer,
        )
    groups = decay_groups(named_parameters, options.weight_decay)
    if not any(group["params"] for group in groups):
        raise ArgumentValueError(
            "Every parameter of the model is frozen, so there is nothing to train.", advice="Freeze fewer layers."
        )
    return builder(groups, options)


def apply_updatable(optimizer: torch.optim.Optimizer, options: OptimizerOptions) -> None:
    """Put learning rate, epsilon and weight decay of the options into force, from the next step on.

    Call it after loading state: what the user asks for today wins over what was in force when the state was saved. The
    betas and AMSGrad are not touched; they belong to the moments and are fixed for the life of a run.
    """
    for group in optimizer.param_groups:
        if "eps" in group:
            group["eps"] = 10.0**options.epsilon_exponent
        if group.get("group") == DECAY:
            group["weight_decay"] = options.weight_decay
    set_learning_rate(optimizer, options.learning_rate)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of every group, from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
