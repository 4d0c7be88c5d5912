"""How numbers travel from where they arise to those who read them.

``report("loss/a", value)`` puts a value into the dictionary that is the current target; the trainer makes
``trainer.observation`` the target of each iteration, and an evaluator can open a scope of its own.
"""

from __future__ import annotations

from collections.abc import Generator, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from ostinato.errors import ArgumentTypeError, ArgumentValueError


class Scope:
    """Where reports go while it is open."""

    __slots__ = ("target",)

    def __init__(self, target: MutableMapping[str, Any] | None) -> None:
        self.target = target
        """The dictionary that is filled; ``None`` silences. May be exchanged while the scope is open: that is how the
        trainer gives every iteration a new one without opening a scope in each."""


# A context variable belongs to its thread and to its asynchronous task, so a loader thread that reports by accident
# cannot write into the observation of the training thread (RP-1).
_open_scope: ContextVar[Scope | None] = ContextVar("ostinato_report_scope", default=None)


@contextmanager
def scope(target: MutableMapping[str, Any] | None) -> Generator[Scope, None, None]:
    """Send reports to ``target`` inside the ``with`` block; ``None`` silences them. Scopes nest."""
    opened = Scope(target)
    token = _open_scope.set(opened)
    try:
        yield opened
    finally:
        _open_scope.reset(token)


def report(name: str, value: Any) -> None:
    """Report a number of this iteration; the last value of a name wins.

    :param name: a non-empty name such as ``loss/a``.
    :param value: a number, a tensor with one element, or a pair (value, weight). A tensor is detached and stays on its
        device: nothing waits for the device until somebody reads it. Do not change it in place afterwards.
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"A reported name must be a text, not {name!r}.", name=name)
    if not name:
        raise ArgumentValueError("A reported name must not be empty.", advice="Give it a name such as 'loss/a'.")
    opened = _open_scope.get()
    if opened is not None and opened.target is not None:
        opened.target[name] = _detached(value)


def _detached(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach() if value.requires_grad else value
    if isinstance(value, tuple):
        return tuple(_detached(part) for part in value)
    return value


def is_scalar(value: Any) -> bool:
    """Whether a value can be read as one number. Does not read it."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    if isinstance(value, str | bytes):
        return False
    return hasattr(value, "__float__") and getattr(value, "size", 1) == 1


def read_scalars(values: Sequence[Any]) -> list[float]:
    """The values as floats, tensors fetched from each device in one transfer.

    This is the place where the processor waits for the accelerator; call it seldom, with many values.

    :param values: numbers and one-element tensors (see :func:`is_scalar`).
    """
    result = [0.0] * len(values)
    tensors: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for position, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            tensors.setdefault((value.device, value.dtype), []).append(position)
        else:
            result[position] = float(value)
    for positions in tensors.values():
        # reshape and not view: a value may be a strided element of a larger tensor.
        fetched = torch.stack([values[position].detach().reshape(()) for position in positions]).tolist()
        for position, number in zip(positions, fetched, strict=True):
            result[position] = float(number)
    return result
