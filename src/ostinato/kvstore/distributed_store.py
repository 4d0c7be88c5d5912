"""What the stores of several workers have in common: who the workers are, and what each owes by compression."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.dist import Group
from ostinato.dist.per_rank import PerRank
from ostinato.kvstore.built_in_store import BuiltInStore
from ostinato.kvstore.collective_calls import seat_in
from ostinato.kvstore.compression import Compressor, residuals_for_rank
from ostinato.kvstore.store_arguments import checked_group


class DistributedStore(BuiltInStore):
    """A store whose workers are the ranks of a job. Each compresses the sum over its own replicas once.

    :param type: the name it was created by.
    :param group: the workers; ``None`` for those of this process.
    """

    def __init__(self, type: str, group: Group | None) -> None:
        super().__init__(type)
        self._group = checked_group(group)
        self._compressor: Compressor | None = None
        """With what this worker owes; there is one when there is a scheme."""

    def _seat(self) -> tuple[int, int]:
        return seat_in(self._group)

    @abstractmethod
    def residuals(self) -> list[dict[str, Any]]:
        """See :meth:`Store.residuals`: one state for each worker."""

    def residuals_in_parts(self) -> list[dict[str, Any]] | PerRank:
        """See :meth:`Store.residuals_in_parts`. No collective."""
        if self._compressor is None or self.num_workers == 1:
            return self.residuals()
        return PerRank([self._compressor.state_dict()])

    def _owe(self, residuals: Sequence[Mapping[str, Any]]) -> None:
        assert self._compressor is not None
        self._compressor.load_sum_of(residuals_for_rank(residuals, *self._seat()))
