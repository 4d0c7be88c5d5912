"""What each rank goes on with when a state that several ranks have saved is loaded by fewer or by more of them.

The rule: a rank whose number existed goes on with the generators it saved. A rank that is new begins with generators
that follow from those of rank 0, the iteration and its own number, so that no two ranks draw the same, and the same
resume draws the same. What a loader says of its place is true only for the share it had: as soon as the number of ranks
differs it is left out, and the place in the data follows from the counters.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

import torch

from ostinato.extensions.state_parts import OF_RANK
from ostinato.loop.random_state import derived_random_state
from ostinato.runs.content import LoadedGeneration

_log = logging.getLogger(__name__)

_GENERATORS = frozenset({"python", "numpy", "torch", "cuda"})
"""The keys by which the states of generators are known, see :func:`ostinato.loop.random_state.capture_random_state`."""


def rank_state_for(loaded: LoadedGeneration, rank: int, size: int) -> dict[str, Any] | None:
    """What this rank of ``size`` puts in the place of the updater's ``random`` and ``loader``.

    :return: None: what the common state holds is right as it is.
    """
    saved_by = loaded.manifest.world_size
    if saved_by == 1 and size == 1:
        return None
    of_rank_0 = _saved(loaded, 0)
    if of_rank_0 is None:
        return None
    own = _saved(loaded, rank) if rank < saved_by else None
    if saved_by == size and own is not None:
        return own
    if rank == 0 and saved_by != size:
        _log.warning(
            "This state was saved by %s, and %s with it. Ranks that were there keep their random "
            "generators, new ones begin with generators that follow from those of rank 0; the place in the data "
            "follows from the counters.",
            "1 rank" if saved_by == 1 else f"{saved_by} ranks",
            "1 goes on" if size == 1 else f"{size} go on",
        )
    state = own if own is not None else _reseeded(of_rank_0, _seed(of_rank_0, loaded.iteration, rank))
    return {key: None if key == "loader" else _without_pass_start(value) for key, value in state.items()}


def _saved(loaded: LoadedGeneration, rank: int) -> dict[str, Any] | None:
    if loaded.manifest.world_size == 1:  # one rank keeps it within the common state
        trainer = loaded.state.get("trainer") if isinstance(loaded.state, Mapping) else None
        updater = trainer.get("updater") if isinstance(trainer, Mapping) else None
        found = {key: updater[key] for key in OF_RANK if key in updater} if isinstance(updater, Mapping) else {}
        return found or None
    state = loaded.rank_states.of(rank)
    return dict(state) if isinstance(state, Mapping) else None


def _seed(tree: Any, iteration: int, rank: int) -> int:
    digest = hashlib.sha256(f"{iteration} {rank}".encode())
    generators = _find_generators(tree)
    if generators is not None:
        digest.update(bytes(torch.as_tensor(generators["torch"]).to("cpu", torch.uint8).tolist()))
    return int.from_bytes(digest.digest()[:8], "little")


def _is_generators(node: Any) -> bool:
    return isinstance(node, Mapping) and set(node) >= _GENERATORS


def _find_generators(node: Any) -> Mapping[str, Any] | None:
    if _is_generators(node):
        return node
    below = node.values() if isinstance(node, Mapping) else ()
    return next((found for value in below if (found := _find_generators(value)) is not None), None)


def _reseeded(node: Any, seed: int) -> Any:
    """The tree with every set of generators in it seeded anew.

    A loader's own generators stay as rank 0 saved them: ranks that share an order draw it from equal ones.
    """
    if _is_generators(node):
        return {**node, **derived_random_state(seed)}
    return {key: _reseeded(value, seed) for key, value in node.items()} if isinstance(node, Mapping) else node


def _without_pass_start(random_state: Any) -> Any:
    """An order that was drawn for another number of ranks cannot be drawn again."""
    if isinstance(random_state, Mapping) and "pass_start" in random_state:
        return {**random_state, "pass_start": None}
    return random_state
