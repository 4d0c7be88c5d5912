"""From what a user gives as optimizer to the object that trainer, replicas and store share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ostinato.errors import ArgumentTypeError, ContractError
from ostinato.kvstore.parameters import ParameterHandle
from ostinato.optim.rules import Optimizer, TorchOptimizer, create


def bind_optimizer(
    optimizer: Any, optimizer_params: Mapping[str, Any] | None, handles: Sequence[ParameterHandle]
) -> Optimizer:
    """Make or take an optimizer, and show it the parameters: their multipliers are read from there at every update.

    :param optimizer: a name, an :class:`~ostinato.optim.rules.Optimizer`, or a class or an object of ``torch.optim``.
        A torch object goes on with its state and the options of its groups, which may be changed at any time.
    :raises ContractError: an object came with parameters.
    :raises ArgumentValueError: there is no optimizer of this name.
    :raises ArgumentTypeError: a keyword is unknown, or this is no optimizer.
    """
    if optimizer_params is not None and not isinstance(optimizer_params, Mapping):
        raise ArgumentTypeError(
            f"optimizer_params is {optimizer_params!r}, and keyword arguments come as a mapping.",
            advice="Write {'learning_rate': 0.1}.",
        )
    arguments = dict(optimizer_params or {})
    if isinstance(optimizer, str):
        made = create(optimizer, **arguments)
    elif isinstance(optimizer, type) and issubclass(optimizer, torch.optim.Optimizer):
        made = TorchOptimizer(optimizer, **arguments)
    else:
        if arguments:
            raise ContractError(
                f"The optimizer is an object, and optimizer_params {sorted(arguments)} came with it.",
                advice="Configure the object, or give the optimizer's name.",
            )
        made = _object(optimizer)
    made.param_dict = {handle.index: handle for handle in handles}
    made.idx2name = {handle.index: handle.name for handle in handles}
    return made


def _object(optimizer: Any) -> Optimizer:
    if isinstance(optimizer, Optimizer):
        return optimizer
    if isinstance(optimizer, torch.optim.Optimizer):
        return TorchOptimizer(optimizer)
    raise ArgumentTypeError(
        f"The optimizer is {type(optimizer).__name__}.",
        advice="Give a name such as 'sgd', an optimizer of ostinato.optim.rules, or one of torch.optim.",
    )
