"""A group whose collectives may not be used now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeVar

from ostinato.dist.group import Group
from ostinato.errors import StateError

T = TypeVar("T")


class RefusingGroup:
    """Looks like another group and refuses its collectives, which would never end: the other ranks do not take part.

    :param group: the real one.
    :param why: who must not use collectives here, and why: the first part of the message.
    :param advice: what to do instead.
    """

    def __init__(self, group: Group, why: str, advice: str) -> None:
        self.rank = group.rank
        self.size = group.size
        self.local_rank = group.local_rank
        self._group = group
        self._why = why
        self._advice = advice

    def gather(self, value: T) -> list[T]:
        """Refuse.

        :raises StateError: always; so do all collectives.
        """
        self._refuse("gather")

    def broadcast(self, value: T, source: int = 0) -> T:
        """Refuse."""
        self._refuse("broadcast")

    def sum_of(self, values: Sequence[float]) -> list[float]:
        """Refuse."""
        self._refuse("sum_of")

    def barrier(self) -> None:
        """Refuse."""
        self._refuse("barrier")

    def _refuse(self, name: str) -> NoReturn:
        raise StateError(f"{self._why}, and {name}() waits for all ranks.", advice=self._advice, collective=name)

    def explain(self, error: BaseException) -> BaseException:
        """See :meth:`Group.explain`."""
        return self._group.explain(error)

    def abort(self, error: BaseException | None = None) -> None:
        """See :meth:`Group.abort`."""
        self._group.abort(error)

    def close(self) -> None:
        """See :meth:`Group.close`."""
        self._group.close()

    def __repr__(self) -> str:
        return f"RefusingGroup({self._group!r})"
