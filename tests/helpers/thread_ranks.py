"""Several ranks as threads of this process: for code that only talks to its group."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ostinato.dist import Alone

T = TypeVar("T")

_LONGEST = 60.0  # seconds until a rank that waits alone gives up


class ThreadGroup(Alone):
    """The group as one of the threads sees it."""

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        self.rank = self.local_rank = rank
        self.size = len(meeting.table)
        self.messages = 0
        """How many collectives this rank has taken part in."""
        self._meeting = meeting

    def gather(self, value: T) -> list[T]:
        self.messages += 1
        return self._meeting.exchange(self.rank, value)

    def broadcast(self, value: T, source: int = 0) -> T:
        return self.gather(value)[source]

    def sum_of(self, values: Sequence[float]) -> list[float]:
        return [_sum(column) for column in zip(*self.gather(list(values)), strict=True)]

    def barrier(self) -> None:
        self.gather(None)


class _Meeting:
    def __init__(self, size: int) -> None:
        self.table: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=_LONGEST)

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self.table[rank] = value
        self.barrier.wait()
        everyone = list(self.table)
        self.barrier.wait()  # nobody writes again before all have read
        return everyone


def on_ranks(size: int, work: Callable[[ThreadGroup], T]) -> list[T]:
    """Do the same work on every rank at the same time; what the ranks return, in order. Raises what one of them did."""
    meeting = _Meeting(size)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadGroup(rank, meeting))
        except BaseException as error:
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A broken barrier is what the other ranks see of somebody else's error.
    errors.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError))
    if errors:
        raise errors[0]
    return results


def _sum(column: Sequence[float]) -> float:
    return math.fsum(column) if all(map(math.isfinite, column)) else sum(column)
