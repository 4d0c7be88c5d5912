"""The workers of a synchronous store, who meet when the store first needs them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch.distributed as dist

from ostinato.dist import Group, open_group
from ostinato.kvstore.collective_agreement import require_same
from ostinato.kvstore.collective_calls import Collectives, seat_in
from ostinato.kvstore.collective_failures import naming_missing_workers


class CollectiveWorkers:
    """The ranks that share a store, and what they tell each other beside tensors.

    :param given: the ranks; ``None`` for those of this process: their group is opened by :meth:`meet` then, and closed
        by :meth:`leave`.
    """

    def __init__(self, given: Group | None) -> None:
        self._given = given
        self._group: Group | None = None
        self._collectives: Collectives | None = None

    @property
    def seat(self) -> tuple[int, int]:
        """Rank and number of workers, also before they have met."""
        return seat_in(self._group or self._given)

    @property
    def are_met(self) -> bool:
        """Whether :meth:`meet` was called."""
        return self._collectives is not None

    def meet(self) -> Collectives:
        """The tensor collectives over all workers. The first call waits for them."""
        if self._collectives is None:
            self._group = self._given if self._given is not None else open_group()
            self._collectives = Collectives(dist.group.WORLD if self._group.size > 1 else None)
        return self._collectives

    @property
    def group(self) -> Group:
        """The ranks as a group. The first call waits for them."""
        self.meet()
        assert self._group is not None
        return self._group

    def naming_missing(self) -> AbstractContextManager[None]:
        """For collectives: a failure inside names who did not come. Nothing where nobody has met yet.

        :raises RankFailedError: see :func:`~ostinato.kvstore.collective_failures.naming_missing_workers`.
        """
        return nullcontext() if self._group is None else naming_missing_workers(self._group)

    def any_of(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether any worker has set it; the same answer on all of them. A collective."""
        group, collectives = self.group, self.meet()
        if group.size == 1 or not flags:
            return list(flags)
        with naming_missing_workers(group), collectives.timed():  # who comes late is waited for here
            return [total > 0 for total in group.sum_of([float(flag) for flag in flags])]

    def require_same(self, verb: str, said: str) -> None:
        """See :func:`~ostinato.kvstore.collective_agreement.require_same`. A collective."""
        require_same(self.group, verb, said)

    def leave(self) -> None:
        """Close the group, where it was opened here."""
        if self._group is not None and self._given is None:
            self._group.close()
        self._group = self._collectives = None
