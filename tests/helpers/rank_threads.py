"""Several ranks in the threads of one process: quick enough to try many cases. Real ones are in ``rank_processes``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ostinato.dist import Alone
from ostinato.errors import RankFailedError

_LIMIT = 120.0

T = TypeVar("T")


class _Meeting:
    """Where the threads meet: everyone puts something down, and when all have, everyone takes it all."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)
        self.values: list[Any] = [None] * size
        self.failure: tuple[int, BaseException] | None = None


class ThreadGroup(Alone):
    """The group as one of the threads sees it."""

    def __init__(self, rank: int, size: int, meeting: _Meeting) -> None:
        self.rank = self.local_rank = rank
        self.size = size
        self._meeting = meeting
        self.calls: list[str] = []
        """The collectives so far, by name."""

    def _exchange(self, name: str, value: Any) -> list[Any]:
        self.calls.append(name)
        try:
            self._meeting.values[self.rank] = (name, value)
            self._meeting.barrier.wait(_LIMIT)
            everything = list(self._meeting.values)
            self._meeting.barrier.wait(_LIMIT)  # nobody puts down the next thing before all have looked
        except threading.BrokenBarrierError:
            rank, error = self._meeting.failure or (None, None)
            raise RankFailedError(f"Rank {rank} failed: {error!r}", rank=rank, error=repr(error)) from None
        names = {name for name, _ in everything}
        assert len(names) == 1, f"different collectives have met: {everything}"
        return [value for _, value in everything]

    def gather(self, value: Any) -> list[Any]:
        return self._exchange("gather", value)

    def broadcast(self, value: Any, source: int = 0) -> Any:
        return self._exchange("broadcast", value)[source]

    def sum_of(self, values: Sequence[float]) -> list[float]:
        everything = self._exchange("sum_of", [float(value) for value in values])
        return [sum(column) for column in zip(*everything, strict=True)]

    def barrier(self) -> None:
        self._exchange("barrier", None)

    def abort(self, error: BaseException | None = None) -> None:
        if self._meeting.failure is None and error is not None:
            self._meeting.failure = (self.rank, error)
        self._meeting.barrier.abort()


def on_threads(function: Callable[[ThreadGroup], Any], ranks: int = 2) -> list[Any]:
    """Call ``function(group)`` in a thread for each rank; what each returned, or the exception that it raised."""
    meeting = _Meeting(ranks)
    results: list[Any] = [None] * ranks

    def call(rank: int) -> None:
        group = ThreadGroup(rank, ranks, meeting)
        try:
            results[rank] = function(group)
        except BaseException as error:
            results[rank] = error
            group.abort(error)

    threads = [threading.Thread(target=call, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LIMIT)
        assert not thread.is_alive(), "a rank hangs"
    return results


def on_ranks(size: int, work: Callable[[ThreadGroup], T]) -> list[T]:
    """Do the same work on every rank where none is expected to fail; what the ranks return, in order.

    :raises BaseException: what one of them raised; not its echo in the others.
    """
    results = on_threads(work, size)
    errors = [result for result in results if isinstance(result, BaseException)]
    errors.sort(key=lambda error: isinstance(error, RankFailedError))
    if errors:
        raise errors[0]
    return results
