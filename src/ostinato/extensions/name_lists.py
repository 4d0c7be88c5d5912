"""Lists of names that a user gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError


def names_of(names: Any, owner: str, argument: str) -> tuple[str, ...]:
    """The names, in order.

    :param names: one text, or texts.
    :param owner: who was given them; for the message.
    :param argument: what the argument is called.
    :raises ArgumentTypeError: when something is no text.
    :raises ArgumentValueError: when there is none, an empty one, or one twice.
    """
    if isinstance(names, str):
        names = (names,)
    if not isinstance(names, Iterable):
        raise ArgumentTypeError(
            f"{owner}: {argument} must be a list of names, not {names!r}.", name=argument, value=names
        )
    names = tuple(names)
    for name in names:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{owner}: {argument} holds {name!r}, not a text.", name=argument, value=name)
    twice = [name for name in names if names.count(name) > 1]
    if not names or "" in names or twice:
        what = f"names {twice[0]!r} twice" if twice else "holds an empty name" if names else "is empty"
        raise ArgumentValueError(
            f"{owner}: {argument} {what}.", advice="Name each observed value once.", name=argument, value=names
        )
    return names
