"""Do all workers do the same? A check before collectives that would otherwise hang, or add up what does not belong
together."""

from __future__ import annotations

import os
import zlib

from ostinato.dist import Group
from ostinato.errors import StateError

CHECK_VARIABLE = "OSTINATO_CHECK_WORKERS"
"""Set to 1, workers compare before every exchange what they are about to do, at the price of one small message."""


def checks_workers() -> bool:
    """Whether the environment asks for the checks that cost something in every step."""
    return os.environ.get(CHECK_VARIABLE, "") not in ("", "0")


def require_same(group: Group, verb: str, said: str) -> None:
    """Compare a text over the workers. A collective; cheap, because a checksum goes first.

    :param verb: what a worker does, as in "worker 1 *exchanges* something else".
    :raises StateError: a worker says something else; the first difference is named. Field: ``worker``.
    """
    if group.size == 1 or len(set(group.gather(zlib.crc32(said.encode())))) == 1:
        return
    texts = group.gather(said)
    other = next(rank for rank, text in enumerate(texts) if text != texts[0])
    raise StateError(
        f"Worker {other} {verb} something else than worker 0: {_difference(texts[other], texts[0])}.",
        advice="All workers use the same parameters in the same order, the same rate and the same batch size.",
        worker=other,
    )


def _difference(one: str, other: str) -> str:
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, start - 20)
    return f"...{one[start : start + 60]}... and not ...{other[start : start + 60]}..."
