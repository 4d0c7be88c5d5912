"""The keys of a store, and the arrangement of keys and values in its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore.store import Key
from ostinato.optim.row_sparse_gradient import RowSparse


def key_list(key: Key | Sequence[Key]) -> list[Key]:
    """The keys of a call as a list.

    :raises ArgumentTypeError: one is neither a number nor text.
    """
    keys = list(key) if isinstance(key, (list, tuple)) else [key]
    for one in keys:
        if isinstance(one, bool) or not isinstance(one, (int, str)):
            raise ArgumentTypeError(
                f"A key is a number or text, not {type(one).__name__}.", advice="Give one key, or a list of keys."
            )
    return keys  # pyrefly: ignore


def single_key(key: Any) -> Key:
    """The key of a call that takes one.

    :raises ArgumentTypeError: it is a list, or no key.
    """
    if isinstance(key, (list, tuple)):
        raise ArgumentTypeError("One key is needed, and a list was given.", advice="Call this for each key.")
    return key_list(key)[0]


def arranged(key: Key | Sequence[Key], values: Any) -> dict[Key, list[Any]]:
    """Put the values of a call under their keys, one list for each key, in the order of the keys.

    A key that is repeated has its values put together, so they are added up.

    :raises ArgumentValueError: there are not as many values as keys.
    """
    key_list(key)
    if not isinstance(key, (list, tuple)):
        return {key: _replica_list(values)}  # pyrefly: ignore
    if not isinstance(values, (list, tuple)) or len(values) != len(key):
        count = len(values) if isinstance(values, (list, tuple)) else 1
        raise ArgumentValueError(
            f"A call with {len(key)} keys has {count} values.", advice="Give one value, or one list, for each key."
        )
    placed: dict[Key, list[Any]] = {}
    for one, value in zip(key, values, strict=True):
        placed.setdefault(one, []).extend(_replica_list(value))
    return placed


def _replica_list(value: Any) -> list[Any]:
    if isinstance(value, (Tensor, RowSparse)):
        return [value]
    if isinstance(value, (list, tuple)) and all(isinstance(item, (Tensor, RowSparse)) for item in value):
        return list(value)
    raise ArgumentTypeError(
        f"A store takes tensors and row-sparse values, not {type(value).__name__}.",
        advice="Give a tensor, or a list of tensors with one for each replica.",
    )


class KeyKind:
    """Holds a store to keys of one kind: the first key fixes it for the life of the store."""

    def __init__(self) -> None:
        self._kind: type | None = None

    def check(self, keys: Sequence[Key]) -> None:
        """:raises ArgumentValueError: a key is of the other kind."""
        for key in keys:
            kind = str if isinstance(key, str) else int
            if self._kind is None:
                self._kind = kind
            elif kind is not self._kind:
                first, this = ("text", "a number") if self._kind is str else ("numbers", "text")
                raise ArgumentValueError(
                    f"The key {key!r} is {this}, and this store's keys are {first}.",
                    advice="Use one kind of keys for the life of a store.",
                    key=key,
                )
