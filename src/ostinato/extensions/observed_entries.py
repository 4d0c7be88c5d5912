"""The entries of an observation: names, and values with or without a weight."""

from __future__ import annotations

from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError


def check_key(key: Any, owner: str, name: str = "key") -> str:
    """A name of the observation, if it can be one.

    :param owner: whose argument it is, for messages.
    :param name: which argument.
    :raises ArgumentTypeError: when it is no text.
    :raises ArgumentValueError: when it is empty.
    """
    if not isinstance(key, str):
        raise ArgumentTypeError(f"{owner}: {name} must be a text such as 'loss', not {key!r}.", name=name, value=key)
    if not key:
        raise ArgumentValueError(
            f"{owner}: {name} is empty.", advice="Give it a name such as 'loss'.", name=name, value=key
        )
    return key


def value_of(entry: Any) -> Any:
    """The value of an entry, which may be a pair (value, weight)."""
    return entry[0] if isinstance(entry, tuple) and len(entry) == 2 else entry
