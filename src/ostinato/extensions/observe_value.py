"""Puts a number of one's own into the observation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ostinato.errors import ArgumentTypeError
from ostinato.extensions.observed_entries import check_key
from ostinato.loop import PRIORITY_WRITER, Extension, TrainerView, report


class ValueObserver(Extension):
    """Reports what a function of the trainer returns; see :func:`observe_value`."""

    trigger = (1, "epoch")
    priority = PRIORITY_WRITER
    name = "observe_value"

    def __init__(self, key: str, function: Callable[[Any], Any]) -> None:
        self.key = check_key(key, "observe_value")
        if not callable(function):
            raise ArgumentTypeError(
                f"observe_value: function must be a function of the trainer, not {function!r}.", value=function
            )
        self._function = function

    def __call__(self, trainer: TrainerView) -> None:
        """Report the value of this moment."""
        report(self.key, self._function(trainer))


def observe_value(key: str, function: Callable[[Any], Any]) -> ValueObserver:
    """An extension that reports ``function(trainer)`` under a key, at the end of every epoch unless told otherwise.

    ::

        trainer.extend(observe_value("queue", lambda trainer: queue.qsize()), trigger=(100, "iteration"))

    :param key: the name of the value in the observation.
    :param function: called with the trainer; returns a number, a tensor with one element or a pair (value, weight).
    :raises ArgumentTypeError: when the key is no text or the function cannot be called.
    :raises ArgumentValueError: when the key is empty.
    """
    return ValueObserver(key, function)
