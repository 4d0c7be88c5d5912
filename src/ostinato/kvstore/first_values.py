"""The values that parameters begin with: those of rank 0's first replica, on all replicas and ranks."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from ostinato.kvstore.parameters import ParameterHandle
from ostinato.kvstore.store import Store
from ostinato.kvstore.tables import TableParameter

_log = logging.getLogger(__name__)


def give_first_values(ready: Sequence[ParameterHandle], store: Store | None) -> None:
    """Bring parameters that have a shape to the first replica's values, and make them known to the store.

    A collective where the store is distributed. Gradients that were computed from other values are warned of.
    """
    before = [_fingerprints(handle) for handle in ready] if any(handle.is_fresh for handle in ready) else None
    if store is None:
        with torch.no_grad():
            for handle in ready:
                for replica in handle.replicas[1:]:
                    replica.copy_(handle.replicas[0])
    else:
        _hand_to(store, ready)
    if before is not None and before != [_fingerprints(handle) for handle in ready]:
        _log.warning(
            "replicas or ranks began with other weights than rank 0's first replica, and have gradients of these; "
            "call open() before the first forward pass"
        )


def _hand_to(store: Store, ready: Sequence[ParameterHandle]) -> None:
    store.name_keys({handle.index: handle.name for handle in ready})
    dense = [handle for handle in ready if not isinstance(handle, TableParameter)]
    for handle in ready:
        if isinstance(handle, TableParameter):
            store.init(handle.index, handle.initial_rows())
            handle.handed_over()
    if dense:
        store.broadcast(
            [handle.index for handle in dense],
            [handle.data() for handle in dense],
            [handle.weights() for handle in dense],
            [-handle.index for handle in dense],
        )
    store.watch({handle.index: handle.replicas for handle in dense if handle.is_trained})


def _fingerprints(handle: ParameterHandle) -> list[tuple[float, float]]:
    """Two sums over each replica's weights, to tell whether they were changed."""
    return [(float(weight.sum()), float(weight.abs().sum())) for weight in handle.weights()]
