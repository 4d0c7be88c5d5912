"""What one replica keeps to apply an optimizer: states and counts by index."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.optim.argument_checks import require_mapping
from ostinato.optim.rules.missed_steps import MISSED_STEPS, MissedSteps
from ostinato.optim.rules.optimizer import Gradient, Optimizer, State, check_index, check_lists
from ostinato.optim.rules.settings import Index

FORMAT = 1


class Updater:
    """Applies an optimizer to the weights of one replica, or to those of a store.

    Every updater has states and counts of its own, so replicas that share an optimizer, and even a device, do not
    advance each other's counts.

    :param optimizer: shared by reference; may be replaced.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentTypeError(
                f"An updater applies an optimizer of ostinato.optim.rules, not {type(optimizer).__name__}.",
                advice="Make one with create('sgd').",
            )
        self.optimizer = optimizer
        self.states: dict[Index, State] = {}
        """By index; made at the first update, or loaded. A loaded one moves to its weight's device when it is used."""
        self.counts: dict[Index, int] = {}
        """Updates so far, by index."""
        self._settled: set[Index] = set()

    def __call__(
        self,
        indices: Index | Sequence[Index],
        gradients: Gradient | Sequence[Gradient],
        weights: Tensor | Sequence[Tensor],
    ) -> None:
        """Update weights in place; states come into being where there are none.

        :param indices: one index, or a list with one for each gradient and weight.
        :raises ArgumentValueError: something does not fit together, a loaded state included. No weight of the same
            optimizer call has changed then.
        """
        if isinstance(indices, (int, str)):
            indices, gradients, weights = [indices], [gradients], [weights]  # type: ignore[list-item]
        check_lists(indices, gradients, weights)
        triples = list(zip(indices, gradients, weights, strict=True))  # type: ignore[arg-type]
        for index, _, weight in triples:
            self.state_of(index, weight)
        for call in self._calls(triples):
            names, called_gradients, called_weights = zip(*call, strict=True)
            self.optimizer.update(
                names,
                called_weights,
                called_gradients,
                [self.states[index] for index in names],
                counts=self.counts,
            )

    def _calls(self, triples: list[tuple[Index, Gradient, Tensor]]) -> Iterable[list[tuple[Index, Gradient, Tensor]]]:
        limit = self.optimizer.explicit_aggregate_num
        if not triples:
            return []
        if limit is None or limit == float("inf"):
            return [triples]
        by_dtype: dict[torch.dtype, list[tuple[Index, Gradient, Tensor]]] = {}
        for triple in triples:
            by_dtype.setdefault(triple[2].dtype, []).append(triple)
        size = max(1, int(limit))
        return itertools.chain.from_iterable(
            (group[start : start + size] for start in range(0, len(group), size)) for group in by_dtype.values()
        )

    def state_of(self, index: Index, weight: Tensor) -> State:
        """Give the state of a weight, made now if there is none, on the weight's device.

        :raises ArgumentValueError: a loaded state does not fit the weight.
        """
        check_index(index)
        state = self.states.get(index)
        if state is None:
            state = self.states[index] = self.optimizer.create_state(index, weight)
            self._settled.add(index)
        elif index not in self._settled:
            self.states[index] = state = self.optimizer.adopt_state(index, weight, state)
            self._settled.add(index)
        return state

    def catch_up(
        self,
        indices: Index | Sequence[Index],
        weights: Tensor | Sequence[Tensor],
        rows: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Bring rows whose updates were put off up to date: before they are read, and all of them before saving.

        Costs nothing for weights that put nothing off. See ``update="dense_lazy"`` of
        :class:`~ostinato.optim.rules.sgd.SGD`.

        :param rows: row numbers for each weight; None for all rows of all of them.
        """
        if isinstance(indices, (int, str)):
            indices, weights = [indices], [weights]  # type: ignore[list-item]
            rows = None if rows is None else [rows]  # type: ignore[list-item]
        check_lists(indices, weights, *(() if rows is None else (rows,)))
        for position, (index, weight) in enumerate(zip(indices, weights, strict=True)):
            if index in self.states:
                chosen = None if rows is None else rows[position]
                self.optimizer.catch_up(index, weight, self.state_of(index, weight), chosen)

    # --- as data ------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Give states and counts as a plain tree; the tensors are the living ones.

        ``{"format": 1, "optimizer": name, "states": {index: {name: tensor or number}}, "counts": {index: n}}``. The
        optimizer's own settings are in its own ``state_dict``.
        """
        return {
            "format": FORMAT,
            "optimizer": self.optimizer.name,
            "states": {index: pack_state(state) for index, state in self.states.items()},
            "counts": dict(self.counts),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from saved states and counts. Tensors are copied, and checked against their weights at first use.

        :raises ArgumentValueError: the state is of another optimizer or of an unknown format. Nothing is changed then.
        """
        require_mapping("The state of an updater", state, "Give what its state_dict() gave.")
        if state.get("format") != FORMAT:
            raise ArgumentValueError(
                f"These optimizer states have format {state.get('format')!r}, and {FORMAT} is the one that is known.",
                advice="They may come from a newer version of Ostinato.",
            )
        if state["optimizer"] != self.optimizer.name:
            raise ArgumentValueError(
                f"The states were saved by {state['optimizer']}, and this optimizer is {self.optimizer.name}.",
                advice=f"Go on with {state['optimizer']}, or start {self.optimizer.name} without loading.",
                saved=state["optimizer"],
                found=self.optimizer.name,
            )
        states = {index: unpack_state(packed) for index, packed in state["states"].items()}
        self.states, self.counts, self._settled = states, dict(state["counts"]), set()


def pack_state(state: State) -> dict[str, Any]:
    """Give one weight's state as a plain tree; the tensors are the living ones."""
    require_mapping("The state of a weight", state, "Give what create_state() made.")
    return {name: value.state_dict() if isinstance(value, MissedSteps) else value for name, value in state.items()}


def unpack_state(packed: Mapping[str, Any]) -> State:
    """Give the state that :func:`pack_state` described, with copies of its tensors."""
    require_mapping("The state of a weight", packed, "Give what pack_state() gave.")
    state: State = {}
    for name, value in packed.items():
        if name == MISSED_STEPS:
            state[name] = MissedSteps.from_state_dict(value)
        elif isinstance(value, Mapping):
            state[name] = unpack_state(value)
        else:
            state[name] = value.detach().clone() if isinstance(value, Tensor) else value
    return state
