"""Updates on the replicas: every replica of this process applies the optimizer to its own weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ostinato.kvstore.parameters import ParameterHandle
from ostinato.optim.rules import Optimizer, Updater

MASTER = "master_weight"


class ReplicaUpdaters:
    """One updater for each replica. They share the optimizer; states and counts are their own.

    :param optimizer: shared by reference.
    :param replicas: how many.
    """

    def __init__(self, optimizer: Optimizer, replicas: int) -> None:
        self._updaters = [Updater(optimizer) for _ in range(replicas)]

    def update(self, handles: Sequence[ParameterHandle]) -> None:
        """Apply the gradients in the buffers of these parameters to their replicas."""
        if not handles:
            return
        for number, updater in enumerate(self._updaters):
            updater(
                [handle.index for handle in handles],
                [handle.reduced_gradient(number) for handle in handles],
                [handle.replicas[number] for handle in handles],  # themselves: torch's optimizers know them
            )

    def weight_replaced(self, handle: ParameterHandle) -> None:
        """A weight has another value now: master copies follow, the rest of the state stays."""
        for replica, updater in zip(handle.replicas, self._updaters, strict=True):
            refresh_master_copy(updater, handle.index, replica.detach())

    def catch_up(self, handle: ParameterHandle, rows: Tensor | None) -> None:
        """Bring rows whose updates were put off up to date, on every replica."""
        for replica, updater in zip(handle.replicas, self._updaters, strict=True):
            here = None if rows is None else [rows.to(replica.device)]
            updater.catch_up([handle.index], [replica], here)

    def state_dict(self) -> dict[str, Any]:
        """The first replica's states and counts; those of the others are equal."""
        return self._updaters[0].state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give every replica the same states and counts."""
        for updater in self._updaters:
            updater.load_state_dict(state)


def refresh_master_copy(updater: Updater, index: int | str, weight: Tensor) -> None:
    """Set the float32 master copy of a weight, where one is kept, to the weight's own value."""
    master = updater.states.get(index, {}).get(MASTER)
    if isinstance(master, Tensor):
        with torch.no_grad():
            master.copy_(weight)
