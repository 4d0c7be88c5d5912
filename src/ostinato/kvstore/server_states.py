"""Optimizer states that lie on servers: put together for a worker, in parts, and handed to the servers again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ostinato.errors import StateError
from ostinato.kvstore.placed_array import Placed
from ostinato.kvstore.row_sparse_exchange import row_borders
from ostinato.kvstore.saved_leaves import changed
from ostinato.kvstore.server_link import ServerLink
from ostinato.kvstore.store import Key
from ostinato.optim.rules import Optimizer
from ostinato.runs.row_cut import RowCut

SERVERS_FILE = "server_states"
"""What the files begin with to which workers save states that are cut over the servers."""


class ServerStates:
    """Asks servers for the states of their parts, and gives them theirs of saved ones.

    :param servers: those to ask.
    :param placed: where the arrays lie; more keys may come.
    """

    def __init__(self, servers: ServerLink, placed: Mapping[Key, Placed]) -> None:
        self._servers = servers
        self._placed = placed

    def whole(self, optimizer: Optimizer) -> dict[str, Any]:
        """All states, each in its array's own shape."""
        saved = self._saved(optimizer, {key: (0, placed.lines) for key, placed in self._placed.items()})
        return {**saved, "states": {key: self._placed[key].shaped(state) for key, state in saved["states"].items()}}

    def in_parts(self, optimizer: Optimizer, rank: int, size: int) -> dict[str, Any]:
        """All states, of what is cut over servers this worker's share; of what is not, nothing but for worker 0."""
        cut = {key: placed for key, placed in self._placed.items() if len(placed.parts) > 1}
        borders = {key: row_borders(placed.lines, size)[rank : rank + 2] for key, placed in cut.items()}
        asked = {key: (first, last) for key, (first, last) in borders.items()}
        if rank == 0:  # the others' word of what is not cut is not heard
            asked |= {key: (0, placed.lines) for key, placed in self._placed.items() if key not in cut}
        saved = self._saved(optimizer, asked)
        for key, placed in cut.items():
            first, last = borders[key]

            def part(leaf: Tensor, first: int = first, last: int = last, lines: int = placed.lines) -> Tensor | RowCut:
                is_cut = leaf.ndim > 0 and len(leaf) == last - first
                return RowCut(leaf, first, lines, file=SERVERS_FILE) if is_cut else leaf

            if key in saved["states"]:
                saved["states"][key] = changed(saved["states"][key], part)
        return saved

    def _saved(self, optimizer: Optimizer, asked: Mapping[Key, tuple[int, int]]) -> dict[str, Any]:
        """States of these keys, of each the lines from the first to the last (not included) number."""
        requests: dict[int, dict[Key, tuple[int, int]]] = {server: {} for server in range(self._servers.servers)}
        where = {key: self._placed[key].overlaps(*lines) for key, lines in asked.items()}
        for key, overlaps in where.items():
            for part, first, last in overlaps:
                requests[part.server][key] = (first, last)
        answers = self._servers.ask(
            {
                server: {
                    "call": "save",
                    "lines": {key: list(lines) for key, lines in of_server.items()},
                    "cut": [key for key in of_server if len(self._placed[key].parts) > 1],
                }
                for server, of_server in requests.items()
                if of_server
            }
        )
        states: dict[Key, Any] = {}
        counts: Counter[Key] = Counter()
        for key, overlaps in where.items():
            found = [
                (last - first, answers[part.server]["states"]["states"].get(key)) for part, first, last in overlaps
            ]
            if found[0][1] is not None:
                states[key] = self._placed[key].join(found)
        for answer in answers.values():
            for key, count in answer["states"]["counts"].items():
                counts[key] = max(counts[key], count)
        return {"format": 1, "optimizer": optimizer.name, "states": states, "counts": dict(counts)}

    def load(self, states: Mapping[str, Any], optimizer: Optimizer, *, is_first: bool) -> None:
        """Hand the servers their parts of saved states. All workers call this, and wait for the first one.

        :param is_first: this is worker 0, whose states count.
        :raises StateError: a key is not initialised yet, so it is not known which server takes what.
        """
        missing = [key for key in states["states"] if key not in self._placed]
        if missing:
            raise StateError(
                f"A state for the key {missing[0]!r} was loaded before the key was initialised.",
                advice="Initialise the keys first.",
                key=missing[0],
            )
        self._servers.barrier()
        if is_first:
            for server in range(self._servers.servers):
                own = {
                    key: self._placed[key].cut(part, state)
                    for key, state in states["states"].items()
                    for part in self._placed[key].parts
                    if part.server == server
                }
                counts = {key: states["counts"].get(key, 0) for key in own}
                message = {"call": "load", "states": {**states, "states": own, "counts": counts}}
                self._servers.ask({server: {**message, "num_update": optimizer.num_update}})
        self._servers.barrier()
