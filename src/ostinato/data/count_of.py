"""Numbers of things as people say them."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """``1 pair``, ``2 pairs``, ``1,000 pairs``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
