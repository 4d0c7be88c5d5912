"""Whether somebody wrote to a weight since a trainer did."""

from __future__ import annotations

from collections.abc import Iterable

from ostinato.kvstore.parameters import ParameterHandle
from ostinato.kvstore.tables import TableParameter


class WeightVersions:
    """Remembers autograd's write counters, which every in-place change of a tensor moves on.

    A checkpoint that is loaded into a model in the middle of training is noticed so: a store that updates has a weight
    of its own, and optimizers have float32 master copies, which would undo the loading at the next step.
    """

    def __init__(self) -> None:
        self._known: dict[int, list[int]] = {}

    def remember(self, handles: Iterable[ParameterHandle]) -> None:
        """These weights are as the trainer left them. Tables have no weights here."""
        for handle in handles:
            if not isinstance(handle, TableParameter):
                self._known[handle.index] = [replica._version for replica in handle.replicas]

    def written(self, handle: ParameterHandle) -> list[bool]:
        """For each replica: somebody wrote to it since. Nothing was written to what was never remembered."""
        known = self._known.get(handle.index)
        if known is None:
            return [False] * len(handle.replicas)
        return [replica._version != version for replica, version in zip(handle.replicas, known, strict=True)]

    def forget(self) -> None:
        """Forget everything."""
        self._known.clear()
