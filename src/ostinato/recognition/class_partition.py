"""Which classes belong to which rank."""

from __future__ import annotations


def class_range(classes: int, rank: int, size: int) -> tuple[int, int]:
    """The classes of a rank: first, and one past the last. Ranks' sizes differ by one at most; nothing is padded."""
    return first_class_of(classes, rank, size), first_class_of(classes, rank + 1, size)


def first_class_of(classes: int, rank: int, size: int) -> int:
    """The first class of a rank; of the rank after the last, the number of classes."""
    return (classes // size) * rank + min(rank, classes % size)
