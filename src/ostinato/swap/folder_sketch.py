"""A small fingerprint of a folder of faces, to notice that a resumed run was given other folders."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Sequence
from pathlib import Path

SKETCH_SIZE = 64
"""Hashes kept for each folder: the smallest ones (bottom-k MinHash; Broder 1997). 64 tell a similarity to about 0.1."""


def folder_sketch(files: Iterable[Path]) -> list[str]:
    """The :data:`SKETCH_SIZE` smallest hashes of the files' names and sizes, ascending; hexadecimal.

    Reads no file's content. The folder's own name and place do not count, so that a folder may move.
    """

    def digest(path: Path) -> str:
        name = path.name.encode("utf-8", "surrogateescape")
        return hashlib.blake2b(name + b"\0" + str(path.stat().st_size).encode(), digest_size=8).hexdigest()

    return heapq.nsmallest(SKETCH_SIZE, {digest(path) for path in files})


def similarity(one: Sequence[str], other: Sequence[str]) -> float:
    """Estimated share of files two folders have in common (Jaccard index), 0 to 1; of two empty sketches, 1."""
    smallest = sorted({*one, *other})[:SKETCH_SIZE]
    if not smallest:
        return 1.0
    return len({*one} & {*other} & {*smallest}) / len(smallest)


def exchanged_sides(stored: dict[str, list[str]], now: dict[str, list[str]]) -> tuple[str, str] | None:
    """The first two sides whose folders seem to have changed places since the stored sketches were made, or None."""
    sides = [side for side in now if side in stored]
    for index, one in enumerate(sides):
        for other in sides[index + 1 :]:
            crossed = min(similarity(stored[one], now[other]), similarity(stored[other], now[one]))
            straight = max(similarity(stored[one], now[one]), similarity(stored[other], now[other]))
            if crossed > 0.5 and straight < 0.5:
                return one, other
    return None
