"""What has to be the same on all ranks, looked at before the first update: a difference would end in a hang."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from ostinato.dist import Group
from ostinato.errors import RankFailedError, StateError
from ostinato.loop.updater_state import UpdaterState


def compare_registrations(group: Group, mine: Sequence[str]) -> None:
    """Check that all ranks have registered the same (RK-1). A collective.

    :param mine: a line for each extension of this rank, in order, and for the other settings.
    :raises StateError: on every rank, naming the entries that differ.
    """
    everyone = group.gather(list(mine))
    for rank, theirs in enumerate(everyone):
        if theirs == everyone[0]:
            continue
        ours = everyone[0]
        odd = [entry for entry in [*ours, *theirs] if (entry in ours) != (entry in theirs)]
        raise _on_every_rank(
            group,
            f"Rank 0 and rank {rank} have registered different extensions: {'; '.join(odd) or 'the order differs'}.",
            advice="Register the same extensions on every rank; give ranks=0 to those that only write.",
            rank=rank,
            entries=odd,
        )


def compare_counters(group: Group, state: UpdaterState) -> None:
    """Check that all ranks start from the same place and have equally long loaders (RK-3). A collective.

    :raises StateError: on every rank, with the numbers that differ.
    """
    everyone = group.gather((state.iteration, state.epoch, state.iteration_in_epoch))
    for name, values in zip(("iteration", "epoch", "iteration_in_epoch"), zip(*everyone, strict=True), strict=True):
        if len(set(values)) > 1:
            low, high = values.index(min(values)), values.index(max(values))
            raise _on_every_rank(
                group,
                f"The ranks do not start from the same place: {name} is {values[low]} on rank {low} and {values[high]} "
                f"on rank {high}.",
                advice="Let all ranks continue from the same saved state.",
                values=list(values),
            )
    lengths = group.gather(state.updates_per_epoch)
    if len(set(lengths)) > 1:
        known = [length for length in lengths if length is not None]
        shortest = lengths.index(min(known))
        longest = lengths.index(None) if None in lengths else lengths.index(max(known))
        raise _on_every_rank(
            group,
            f"The loaders of the ranks differ in length: {_batches(lengths[shortest])} on rank {shortest}, "
            f"{_batches(lengths[longest])} on rank {longest}.",
            advice="Give every rank the same number of batches, for example with a sampler that leaves the rest out.",
            lengths=lengths,
        )


def _on_every_rank(group: Group, what: str, advice: str, **fields: Any) -> StateError:
    """The error, when every rank has it. One that failed before the others have all they need would take away their
    connection in the middle of the comparison, and they would only know that it is gone."""
    with contextlib.suppress(RankFailedError):  # then the others know already
        group.barrier()
    return StateError(what, advice=advice, **fields)


def _batches(length: int | None) -> str:
    return "an unknown number of batches" if length is None else f"{length} batches"
