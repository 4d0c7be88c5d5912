"""The group of processes that train one model together, seen from one of them."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, TypeVar

T = TypeVar("T")


class Group(Protocol):
    """What code above needs to know about the other ranks. A group of one has the same interface as a real one, so
    that most code and most tests never ask which of the two they were given.

    The methods that return something, and :meth:`barrier`, are *collectives*: every rank has to call the same ones in
    the same order, and every rank waits for the others. They carry small things (decisions, numbers, names); gradients
    go through torch.distributed itself.
    """

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many processes there are, at least 1."""
        ...

    @property
    def local_rank(self) -> int:
        """Number of this process among those on its machine, from 0: which device is its own."""
        ...

    def gather(self, value: T) -> list[T]:
        """Give a small value that can be pickled, get those of all ranks, in rank order, on every rank.

        :raises RankFailedError: when another rank failed or did not come within the time-out; so do all collectives.
        """
        ...

    def broadcast(self, value: T, source: int = 0) -> T:
        """The value of rank ``source``, on every rank. What the others give is ignored."""
        ...

    def sum_of(self, values: Sequence[float]) -> list[float]:
        """The sums over the ranks, number by number. Every rank gives equally many numbers.

        Float64 and correctly rounded: the same bits on every rank, whatever the order of the ranks.
        """
        ...

    def barrier(self) -> None:
        """Return when every rank has come here."""
        ...

    def explain(self, error: BaseException) -> BaseException:
        """The error itself; or, if it is only the echo of another rank's failure, a ``RankFailedError`` that names that
        rank and what happened there. No collective."""
        ...

    def abort(self, error: BaseException | None = None) -> None:
        """Leave in a hurry: the other ranks' present or next collective fails instead of waiting. No collective.

        :param error: what happened here; the other ranks name it in their own error.
        """
        ...

    def close(self) -> None:
        """Let go of the connections at an orderly end. No collective; a second call does nothing."""
        ...


class Alone:
    """The group of one process. Collectives return at once."""

    rank = 0
    size = 1
    local_rank = 0

    def gather(self, value: T) -> list[T]:
        """See :meth:`Group.gather`."""
        return [value]

    def broadcast(self, value: T, source: int = 0) -> T:
        """See :meth:`Group.broadcast`."""
        return value

    def sum_of(self, values: Sequence[float]) -> list[float]:
        """See :meth:`Group.sum_of`."""
        return [float(value) for value in values]

    def barrier(self) -> None:
        """See :meth:`Group.barrier`."""

    def explain(self, error: BaseException) -> BaseException:
        """See :meth:`Group.explain`."""
        return error

    def abort(self, error: BaseException | None = None) -> None:
        """See :meth:`Group.abort`."""

    def close(self) -> None:
        """See :meth:`Group.close`."""

    def __enter__(self) -> Alone:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return "Alone()"
