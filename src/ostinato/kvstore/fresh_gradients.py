"""Which gradients a step works on: those that some rank has back-propagated to since their last update."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ostinato.errors import UpdateRefusedError
from ostinato.kvstore.parameters import ParameterHandle, some
from ostinato.kvstore.store import Store
from ostinato.kvstore.tables import TableParameter
from ostinato.kvstore.weight_versions import WeightVersions


@dataclass(frozen=True)
class FreshGradients:
    """What a step works on, the same on all ranks, in the order of the parameters."""

    fresh: list[ParameterHandle]
    """Trained, and some rank has back-propagated to it since its last update."""
    unsummed: list[ParameterHandle]
    """Fresh, and some rank's gradient is not the sum yet."""
    resting: list[ParameterHandle]
    """Trained, dense, and not fresh."""
    replaced: list[ParameterHandle]
    """Somebody wrote to the weight since its last update."""


def find_fresh_gradients(
    handles: Sequence[ParameterHandle],
    store: Store | None,
    versions: WeightVersions,
    *,
    without_value: Collection[int],
    ignore_stale_grad: bool,
) -> FreshGradients:
    """Agree with the other ranks on what there is to update, in one exchange.

    :param without_value: numbers of the parameters that no store has taken yet.
    :raises UpdateRefusedError: a trained parameter is stale on all ranks, and that is not ignored.
    """
    for handle in handles:
        handle.watch()
    fresh = [handle.is_fresh for handle in handles]
    unsummed = [flag and not handle.is_reduced for flag, handle in zip(fresh, handles, strict=True)]
    replaced = [any(versions.written(handle)) for handle in handles]
    if store is not None:
        flags = store.agree([*fresh, *unsummed, *replaced])
        count = len(handles)
        fresh, unsummed, replaced = flags[:count], flags[count : 2 * count], flags[2 * count :]
    trained = [handle for handle in handles if handle.is_trained]
    if not ignore_stale_grad:
        stale = [handle.name for handle in trained if not fresh[handle.index]]
        if stale:
            raise UpdateRefusedError(
                f"{len(stale)} parameters have seen no backward pass since their last update: {some(stale)}.",
                advice="If your model leaves them out on purpose, pass ignore_stale_grad=True to leave them alone; "
                "if they are never trained, set requires_grad to False.",
                parameters=stale,
            )
    there = [handle for handle in trained if handle.index not in without_value]
    return FreshGradients(
        [handle for handle in there if fresh[handle.index]],
        [handle for handle in there if unsummed[handle.index]],
        [handle for handle in there if not (fresh[handle.index] or isinstance(handle, TableParameter))],
        [handle for handle in handles if replaced[handle.index]],
    )
