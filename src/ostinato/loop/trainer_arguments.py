"""Checks of what a trainer is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.loop.agreement import AGREE_EVERY
from ostinato.loop.protocols import ExtensionFunction
from ostinato.loop.registration import callable_attribute


def checked_updater(updater: Any) -> Any:
    """The updater, if it has what the trainer calls (UP-12).

    :raises ArgumentTypeError: otherwise.
    """
    missing = [name for name in ("update", "state_dict", "load_state_dict") if not callable_attribute(updater, name)]
    missing += [] if hasattr(updater, "state") else ["state"]
    if missing:
        raise ArgumentTypeError(
            f"The updater is a {type(updater).__qualname__}, which has no {missing[0]} and so is none.",
            advice="Make one of the model, the optimizer and the loader: StandardUpdater(model, optimizer, loader).",
            value=updater,
        )
    return updater


def checked_extensions(extensions: Any) -> Iterable[ExtensionFunction]:
    """The extensions to begin with.

    :raises ArgumentTypeError: when they are no list of them.
    """
    if extensions is None:
        return ()
    if isinstance(extensions, str | bytes) or not isinstance(extensions, Iterable):
        raise ArgumentTypeError(
            f"extensions must be a list of extensions, not {extensions!r}.",
            advice="Write a single one as [extension], or register it with extend().",
            value=extensions,
        )
    return extensions


def checked_group(group: Any) -> Any:
    """The ranks that train together.

    :raises ArgumentTypeError: when it is something else.
    """
    if not all(callable_attribute(group, name) for name in ("gather", "sum_of", "broadcast", "explain")):
        raise ArgumentTypeError(
            f"The group is {group!r}, not the ranks of a job.",
            advice="Give what open_group() returns, or leave it out in a program of one process.",
            value=group,
        )
    return group


def checked_agree_every(agree_every: Any) -> int:
    """How many iterations lie between two agreements; ``None``: the usual number.

    :raises ArgumentTypeError: when it is no whole number.
    :raises ArgumentValueError: when it is below 1.
    """
    if agree_every is None:
        return AGREE_EVERY
    if isinstance(agree_every, bool) or not isinstance(agree_every, int):
        raise ArgumentTypeError(
            f"agree_every must be a whole number of iterations, not {agree_every!r}.", value=agree_every
        )
    if agree_every < 1:
        raise ArgumentValueError(
            f"agree_every must be at least 1 iteration, not {agree_every}.",
            advice="With 1 the ranks agree in every iteration.",
            value=agree_every,
        )
    return agree_every
