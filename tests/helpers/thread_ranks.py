"""The same work on several ranks in threads, where no rank is expected to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rank_threads import ThreadGroup, on_threads

from ostinato.errors import RankFailedError

__all__ = ["ThreadGroup", "on_ranks"]

T = TypeVar("T")


def on_ranks(size: int, work: Callable[[ThreadGroup], T]) -> list[T]:
    """Do the same work on every rank at the same time; what the ranks return, in order.

    :raises BaseException: what one of them raised; not its echo in the others.
    """
    results = on_threads(work, size)
    errors = [result for result in results if isinstance(result, BaseException)]
    errors.sort(key=lambda error: isinstance(error, RankFailedError))
    if errors:
        raise errors[0]
    return results
