"""The optimizers of a run by name, as extensions find them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.loop import TrainerView


def find_optimizers(trainer: TrainerView, optimizer: Optimizer | str | None, owner: str) -> dict[str, Optimizer]:
    """The optimizers that an extension was told to look at.

    :param optimizer: one of them, or the name of one; ``None``: all that the updater has.
    :param owner: who asks, for messages.
    :raises ArgumentValueError: when the updater has none of that name.
    :raises StateError: when the updater has none at all.
    """
    if optimizer is not None and not isinstance(optimizer, str):
        return {"main": optimizer}
    known = getattr(trainer.updater, "optimizers", None)
    if not isinstance(known, Mapping) or not known:
        raise StateError(
            f"{owner} looks for optimizers, and this updater has none in a mapping 'optimizers'.",
            advice="Give the extension the optimizer itself.",
        )
    if optimizer is None:
        return dict(known)
    if optimizer not in known:
        raise ArgumentValueError(
            f"{owner}: no optimizer is named {optimizer!r}.",
            advice=f"The updater has: {', '.join(known)}.",
            name="optimizer",
            value=optimizer,
        )
    return {optimizer: known[optimizer]}


def check_optimizer(optimizer: Any, owner: str) -> Optimizer | str | None:
    """What stands for optimizers, if it does.

    :raises ArgumentTypeError: otherwise.
    """
    # What trains through a store looks like a torch optimizer and is none.
    if optimizer is not None and not isinstance(optimizer, str) and not hasattr(optimizer, "param_groups"):
        raise ArgumentTypeError(
            f"{owner}: optimizer must be an optimizer, the name of one, or None, not {optimizer!r}.",
            name="optimizer",
            value=optimizer,
        )
    return optimizer
