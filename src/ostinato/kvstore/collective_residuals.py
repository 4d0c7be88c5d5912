"""What the workers of a synchronous store owe by compression, put together for saving."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ostinato.kvstore.collective_workers import CollectiveWorkers
from ostinato.kvstore.store import Key


def gather_residuals(
    own: Mapping[str, Any], workers: CollectiveWorkers, device_of: Callable[[Key], torch.device]
) -> list[dict[str, Any]]:
    """The compressors' states of all workers, in their order, on every worker. A collective.

    Memory: as many float32 copies of the gradients as there are workers.

    :param own: this worker's, as :meth:`~ostinato.kvstore.compression.Compressor.state_dict` gives it.
    """
    group, collectives = workers.group, workers.meet()
    if group.size == 1:
        return [dict(own)]
    sizes = group.gather({key: len(kept) for key, kept in own["residuals"].items()})
    states: list[dict[str, Any]] = [{**own, "residuals": {}} for _ in sizes]
    for key in sorted({key for one in sizes for key in one}, key=str):
        size = max(one.get(key, 0) for one in sizes)
        kept = own["residuals"].get(key, torch.zeros(size)).to(device_of(key))
        whole = kept.new_empty(size * len(sizes))
        collectives.all_gather(whole, kept).wait()
        for state, part, one in zip(states, whole.split(size), sizes, strict=True):
            if key in one:
                state["residuals"][key] = part.clone()
    return states
