"""Finds another extension of the same trainer."""

from __future__ import annotations

from typing import Any, TypeVar

from ostinato.errors import ArgumentTypeError

T = TypeVar("T")


def registered_extension(trainer: Any, which: str | T, kind: type[T], owner: str) -> T:
    """An extension that another one works with.

    :param trainer: has ``get_extension`` and ``name_of``.
    :param which: its name, or the extension itself.
    :param kind: what it has to be.
    :param owner: who needs it; for the message.
    :raises ArgumentValueError: when it is not registered.
    :raises ArgumentTypeError: when it is of another kind.
    """
    found = trainer.get_extension(which if isinstance(which, str) else trainer.name_of(which))
    if not isinstance(found, kind):
        raise ArgumentTypeError(
            f"{owner} works with a {kind.__name__}, and the extension {which!r} is a {type(found).__name__}.",
            advice=f"Give the name under which the {kind.__name__} is registered.",
            value=which,
        )
    return found
