"""What stores are given by their users, checked, and what they say to what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ostinato.dist import Group
from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.kvstore.store import Value
from ostinato.optim.argument_checks import require_mapping
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Optimizer, create


def checked_optimizer(optimizer: Any) -> Optimizer:
    """An optimizer that a store can apply; a name makes one with its defaults.

    :raises ArgumentTypeError: it is none.
    :raises ArgumentValueError: there is none of this name.
    """
    if isinstance(optimizer, str):
        return create(optimizer)
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(
            f"A store's optimizer is one of ostinato.optim.rules, not {type(optimizer).__name__}.",
            advice="Give a name such as 'sgd', create('sgd', learning_rate=0.1), or TorchOptimizer(torch.optim.AdamW).",
        )
    return optimizer


def no_optimizer() -> StateError:
    """What a store says that is asked for states and has none."""
    return StateError("This store has no optimizer, so it has no states.", advice="Call set_optimizer() first.")


def no_compression() -> StateError:
    """What a store says that is given residuals and has no use for them."""
    return StateError(
        "There are residuals of gradient compression, and this store compresses nothing.",
        advice="Give compression_params as they were, or leave the residuals out.",
    )


def refuse_compression(label: str, value: Value) -> None:
    """Refuse what compression is not defined for.

    :param label: what messages call the value's key.
    :raises ArgumentTypeError: the value is row-sparse, or not float32.
    """
    if isinstance(value, RowSparse) or value.layout != torch.strided:
        raise ArgumentTypeError(
            f"The value of {label} is row-sparse, and gradient compression takes dense ones.",
            advice="Leave compression_params out, or make the gradient dense (sparse=False).",
        )
    if value.dtype != torch.float32:
        raise ArgumentTypeError(
            f"The value of {label} is {value.dtype}, and gradient compression takes float32.",
            advice="Leave compression_params out, or keep the weights in float32.",
        )


def checked_group(group: Any) -> Group | None:
    """A group of ranks, or None.

    :raises ArgumentTypeError: it is something else.
    """
    if group is not None and not all(hasattr(group, name) for name in ("rank", "size")):
        raise ArgumentTypeError(
            f"The group is {group.__class__.__name__}, which is no group of ranks.",
            advice="Give what ostinato.dist.open_group() returned, or None for the ranks of this process.",
        )
    return group


def check_residuals(residuals: Any) -> bool:
    """Whether there are residuals to load.

    :raises ArgumentTypeError: this is no list of states.
    """
    if not isinstance(residuals, Sequence) or isinstance(residuals, (str, bytes)):
        raise ArgumentTypeError(
            f"Residuals are a list of states, not {type(residuals).__name__}.", advice="Give what residuals() gave."
        )
    for state in residuals if isinstance(residuals, (list, tuple)) else ():
        require_mapping("The state of a worker's residuals", state, "Give what residuals() gave.")
    return len(residuals) > 0


def check_saved_states(states: Any) -> Mapping[str, Any]:
    """States of an optimizer on a store, to be loaded.

    :raises ArgumentTypeError: they are none.
    :raises ArgumentValueError: something is missing.
    """
    advice = "Give what save_optimizer_states() gave."
    require_mapping("The state of a store", states, advice)
    for part in ("states", "counts"):
        if not isinstance(states.get(part), Mapping):
            raise ArgumentValueError(f"The state of a store has no part {part!r}.", advice=advice, part=part)
    return states
