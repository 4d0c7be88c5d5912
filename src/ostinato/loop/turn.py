"""One turn of a part within an update, and what the turns of an update share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ostinato.errors import ArgumentValueError, StateError
from ostinato.loop.updater_state import UpdaterState

SharedFunction = Callable[[Any, "Turn"], Any]
"""From a batch and the turn to a tensor, or to mappings and sequences of tensors."""


@dataclass(frozen=True)
class Turn:
    """What a loss function can ask beside the batch.

    ``turn["fake"]`` is the shared output of that name with its graph: back-propagation goes through it.
    ``turn.detached("fake")`` is the same without.
    """

    part: str
    """Whose turn it is."""
    number: int
    """Which of the repeated turns of this update it is, from 0."""
    state: UpdaterState
    """The counters: work completed before this update. ``turn.state.epoch >= 30`` is how a term of a loss waits."""
    outputs: SharedOutputs

    def __getitem__(self, name: str) -> Any:
        """A shared output, computed by the first who asks for it in this update.

        It is computed anew for a turn that asks for it after another turn has back-propagated through it: a graph
        serves once, and the weights it was made with have changed.
        """
        return self.outputs.with_graph(name, self)

    def detached(self, name: str) -> Any:
        """A shared output without its graph: the newest one of this update, and computed only if there is none."""
        return self.outputs.detached(name, self)


class SharedOutputs:
    """What the turns of one update compute once and use together.

    :param functions: how each output is computed, by name.
    :param batch: the batch of the update.
    """

    def __init__(self, functions: Mapping[str, SharedFunction], batch: Any) -> None:
        self._functions = functions
        self._batch = batch
        self._values: dict[str, Any] = {}  # with their graphs
        self._detached: dict[str, Any] = {}
        self._parents: dict[str, set[str]] = {}  # the outputs that each one was computed from
        self._under_way: list[str] = []  # the outputs that are being computed, each for the one before it
        self._computing: list[set[str]] = []  # the parents found so far of the outputs that are being computed
        self._used: set[str] = set()  # whose graphs this turn goes through

    def with_graph(self, name: str, turn: Turn) -> Any:
        """See :class:`Turn`."""
        value = self._value(name, turn)
        # What an output under way was computed from is used when that output is, and not before.
        (self._computing[-1] if self._computing else self._used).update({name}, self._parents[name])
        return value

    def detached(self, name: str, turn: Turn) -> Any:
        """See :class:`Turn`."""
        if name not in self._detached:
            self._detached[name] = _detached(self._value(name, turn))
        return self._detached[name]

    def end_turn(self) -> None:
        """The turn has back-propagated: forget the graphs it went through."""
        for name in self._used:
            self._detached[name] = _detached(self._values.pop(name))
        self._used.clear()

    def _value(self, name: str, turn: Turn) -> Any:
        if name not in self._values:
            if name not in self._functions:
                raise ArgumentValueError(
                    f"No shared output is named {name!r}.",
                    advice=f"There are: {', '.join(self._functions) or 'none'}; give it to the updater as shared.",
                    name=name,
                )
            if name in self._under_way:
                raise StateError(
                    f"The shared output {name!r} needs itself: {' needs '.join([*self._under_way, name])}.",
                    advice="Let shared outputs build on each other in one direction.",
                    name=name,
                )
            self._computing.append(set())
            self._under_way.append(name)
            try:
                # Whoever asks first may not need a graph; another turn may.
                with torch.enable_grad():
                    self._values[name] = self._functions[name](self._batch, turn)
            finally:
                self._parents[name] = self._computing.pop()
                self._under_way.pop()
            self._detached.pop(name, None)  # of an earlier computation
        return self._values[name]


def _detached(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {name: _detached(part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple takes its fields one by one
        return type(value)(*(_detached(part) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(_detached(part) for part in value)
    return value
