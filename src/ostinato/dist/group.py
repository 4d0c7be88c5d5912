"""The group of processes that train one model together, seen from one of them."""

from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")


class Group(Protocol):
    """What code above needs to know about the other ranks. A group of one has the same interface as a real one, so
    that most code and most tests never ask which of the two they were given."""

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many processes there are, at least 1."""
        ...

    def gather(self, value: T) -> list[T]:
        """Give a small picklable value, get those of all ranks, in rank order, on every rank.

        A collective: every rank has to call it, and every rank waits.
        """
        ...


class Alone:
    """The group of one process. Collectives return at once."""

    rank = 0
    size = 1

    def gather(self, value: T) -> list[T]:
        """See :meth:`Group.gather`."""
        return [value]

    def __repr__(self) -> str:
        return "Alone()"
