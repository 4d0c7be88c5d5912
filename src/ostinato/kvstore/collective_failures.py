"""What to say when an exchange between workers fails: who is missing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
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
        have come, or still wait.
    """
    try:
        yield
    except RankFailedError as error:
        # The group's own collectives know no names either, unless the one that failed has left a note.
        if error.fields.get("rank") is not None or "missing" in error.fields:
            raise
        raise _lost(group, error) from error
    except RuntimeError as error:
        if isinstance(error, OstinatoError) or group.size == 1:
            raise
        explained = group.explain(error)
        if explained is not error:
            raise explained from None
        raise _lost(group, error) from error


def _lost(group: Group, error: Exception) -> RankFailedError:
    missing = _roll_call(group)
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    if len(missing) == 1:  # whoever is gone never answers, so this is the one
        what = f"Worker {missing[0]} has not taken part in the exchange of gradients"
    elif missing:
        names = ", ".join(map(str, missing))
        what = f"An exchange of gradients failed; one of the workers {names} is gone, and the others still wait for it"
    else:
        what = "An exchange of gradients failed, although every worker is there"
    return RankFailedError(
        f"{what}, so worker {group.rank} of {group.size} cannot go on.",
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
        return others
    return []
