"""What to say when an exchange between workers fails: who is missing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ostinato.dist import Group
from ostinato.errors import OstinatoError, RankFailedError

_ROLL = "ostinato/kvstore/roll_call"
_SECONDS_TO_ANSWER = 5.0


@contextlib.contextmanager
def naming_missing_workers(group: Group) -> Generator[None]:
    """Turn the failure of a collective in the block into an error that names the workers who did not come.

    :raises RankFailedError: a collective failed, or waited in vain. Field ``missing``: the ranks that are known not to
        have come.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, OstinatoError) or group.size == 1:
            raise
        explained = group.explain(error)
        if explained is not error:
            raise explained from None
        raise _lost(group, error) from error


def _lost(group: Group, error: RuntimeError) -> RankFailedError:
    missing = _roll_call(group)
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    who = (
        "Another worker has"
        if not missing
        else f"Worker {missing[0]} has"
        if len(missing) == 1
        else f"Workers {', '.join(map(str, missing))} have"
    )
    return RankFailedError(
        f"{who} not taken part in the exchange of gradients, so worker {group.rank} of {group.size} cannot go on.",
        advice="It was killed, hangs, or made another call than the others: look at its log, then start again from the "
        "last save.",
        rank=missing[0] if len(missing) == 1 else None,
        missing=missing,
        error=said,
    )


def _roll_call(group: Group) -> list[int]:
    """The ranks that do not answer. Those whose own exchange failed as well come here and answer."""
    with contextlib.suppress(RuntimeError, ValueError):
        store: Any = dist.PrefixStore(_ROLL, dist.distributed_c10d._get_default_store())
        store.set(str(group.rank), "here")
        end = time.monotonic() + _SECONDS_TO_ANSWER
        others = [rank for rank in range(group.size) if rank != group.rank]
        while others and time.monotonic() < end:
            others = [rank for rank in others if not store.check([str(rank)])]
            time.sleep(0.05)
        if others and group.rank != 0:
            # Whoever keeps the store stays until all have read, or as long as they may need.
            store.set_timeout(timedelta(seconds=_SECONDS_TO_ANSWER))
        return others
    return []
