"""The optimizer states of a synchronous store: put together, in parts, and cut to what a worker updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ostinato.kvstore.collective_keys import CollectiveKeys
from ostinato.kvstore.saved_leaves import changed, read_whole
from ostinato.kvstore.store import Key
from ostinato.kvstore.store_arguments import no_optimizer
from ostinato.optim.rules import Updater


class CollectiveStates:
    """Gives the states that the workers keep for their parts, and takes saved ones.

    Loaded states wait here until it is known which part of their key this worker updates. Until then they may lie on
    the disk, in files that the next save may remove, so giving them away reads them first.
    """

    def __init__(self, keys: CollectiveKeys) -> None:
        self._keys = keys
        self._waiting: dict[Key, Any] = {}

    def whole(self) -> dict[str, Any]:
        """All states, whole, on every worker. A collective."""
        own, states = self._own()
        with torch.no_grad():
            if self._keys.sharded is not None:
                states.update(self._keys.sharded.whole_states(self._in_buckets(states)))
            for key in self._of_tables(states):
                states[key] = self._keys.tables[key].whole_state(states[key])
        return {**own, "states": {**states, **self._read_waiting()}}

    def in_parts(self) -> dict[str, Any]:
        """All states, with this worker's part of what is cut. No collective."""
        own, states = self._own()
        if self._keys.sharded is not None:
            states.update(self._keys.sharded.states_in_parts(self._in_buckets(states)))
        for key in self._of_tables(states):
            states[key] = self._keys.tables[key].state_in_parts(states[key])
        return {**own, "states": {**states, **self._read_waiting()}}

    def load(self, states: Mapping[str, Any]) -> None:
        """Continue from saved states, whole or of any number of workers."""
        self._updater().load_state_dict({**states, "states": {}})
        self._waiting = dict(states["states"])
        self.take_placed()

    def take_placed(self) -> None:
        """Cut loaded states to this worker's parts, as far as it is known what these are."""
        keys = self._keys
        placed = {key for key in self._waiting if keys.is_placed(key)}
        if keys.updater is None or not placed:
            return
        states = {key: self._waiting.pop(key) for key in placed}
        cut = self._of_tables(states)
        for key in cut:
            states[key] = keys.tables[key].own_state(states[key])
        in_buckets = self._in_buckets(states)
        if keys.sharded is not None and keys.buckets is not None:
            for bucket in keys.buckets.buckets:
                states.update(keys.sharded.own_states(bucket, in_buckets))
        for key in states.keys() - cut - in_buckets.keys():
            states[key] = self._read(key, states[key])
        before = keys.updater.state_dict()
        keys.updater.load_state_dict({**before, "states": {**before["states"], **states}})

    def _updater(self) -> Updater:
        if self._keys.updater is None:
            raise no_optimizer()
        return self._keys.updater

    def _own(self) -> tuple[dict[str, Any], dict[Key, Any]]:
        own = self._updater().state_dict()
        return own, dict(own["states"])

    def _in_buckets(self, states: Mapping[Key, Any]) -> dict[Key, Any]:
        buckets = self._keys.buckets
        return {key: state for key, state in states.items() if buckets is not None and key in buckets}

    def _of_tables(self, states: Mapping[Key, Any]) -> list[Key]:
        return [key for key in states if key in self._keys.tables]

    def _read_waiting(self) -> dict[Key, Any]:
        self._waiting = {key: self._read(key, state) for key, state in self._waiting.items()}
        return self._waiting

    def _read(self, key: Key, state: Any) -> Any:
        shape = self._keys.home(key)[0] if key in self._keys else None

        def read(leaf: Any) -> Tensor:
            return read_whole(leaf, shape)

        return changed(state, read)
