"""From what a user asked for to a store, and to the place where updates run."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.kvstore import registry
from ostinato.kvstore.decision import Decision, Sparsity, StoreTraits, decide
from ostinato.kvstore.parameters import ParameterHandle
from ostinato.kvstore.store import Store, Value
from ostinato.kvstore.store_arguments import refuse_compression
from ostinato.kvstore.tables import TableParameter
from ostinato.optim.row_sparse_gradient import RowSparse
from ostinato.optim.rules import Optimizer

_log = logging.getLogger(__name__)

ENVIRONMENT_VARIABLE = "MXNET_UPDATE_ON_KVSTORE"
"""0: leave updates to the replicas where the user did not say; another number: let the store update."""


def open_store(
    given: Any,
    handles: Sequence[ParameterHandle],
    optimizer: Optimizer,
    *,
    asked: bool | None,
    compression: Mapping[str, Any] | None,
) -> tuple[Store | None, Decision]:
    """Create the store that was asked for, decide where updates run, and prepare the store for it.

    A collective where the store is distributed and synchronous. Nothing is kept of an attempt that raises.

    :param given: name of a store, a store, or None.
    :param asked: ``update_on_kvstore`` as the user gave it.
    :param compression: ``compression_params`` as the user gave them.
    :raises ArgumentTypeError: ``given`` is something else; or see :func:`~ostinato.kvstore.decision.decide`.
    :raises ArgumentValueError: see :func:`~ostinato.kvstore.decision.decide`; or the store does not compress like this.
    :raises ContractError: see :func:`~ostinato.kvstore.decision.decide`.
    """
    store = _store_of(given)
    decision = decide(
        None if store is None else _traits(store, is_object=isinstance(given, Store)),
        replicas=len(handles[0].replicas),
        asked=asked,
        aggregates=optimizer.aggregate_num > 1,
        sparsity=_sparsity(handles, store),
        largest=max(handle.numel() for handle in handles),
        environment=_environment(),
    )
    if not decision.has_store:
        store = None
    if compression is not None:
        _compress(store, compression, handles)
    if store is not None and decision.update_on_kvstore:
        store.set_optimizer(optimizer)
    if not decision.aggregates and (optimizer.explicit_aggregate_num or 1) > 1:
        optimizer.explicit_aggregate_num = 1
    return store, decision


def _store_of(given: Any) -> Store | None:
    if given is None or isinstance(given, Store):
        return given
    if isinstance(given, str):
        return registry.create(given)
    raise ArgumentTypeError(
        f"kvstore is {type(given).__name__}, which is neither a name, nor a store, nor None.",
        advice="Give 'device', 'dist_sync', an object derived from ostinato.kvstore.Store, or None.",
    )


def _traits(store: Store, *, is_object: bool) -> StoreTraits:
    return StoreTraits(
        store.type,
        is_object=is_object,
        is_plug_in=not store.built_in,
        is_distributed=store.is_distributed,
        is_asynchronous=store.is_asynchronous,
        runs_optimizer=store.is_capable("optimizer"),
        takes_row_sparse=store.is_capable("row_sparse"),
    )


def _sparsity(handles: Sequence[ParameterHandle], store: Store | None) -> Sparsity:
    if any(isinstance(handle, TableParameter) for handle in handles):
        return "sparse_weight"
    found = any(handle.is_trained and handle.grad_stype == "row_sparse" for handle in handles)
    if store is not None and store.is_distributed:
        # A rank that has not met a row-sparse gradient yet must not decide otherwise.
        (found,) = store.agree([found])
    return "sparse_grad" if found else "dense"


def _compress(store: Store | None, compression: Mapping[str, Any], handles: Sequence[ParameterHandle]) -> None:
    if store is None:
        _log.warning(
            "compression_params %s have no effect: there is no store, so nothing travels between replicas or ranks",
            dict(compression),
        )
        return
    store.set_gradient_compression(compression)
    for handle in handles:
        if handle.is_trained and not handle.is_deferred:
            refuse_compression(repr(handle.name), _kind_of_gradient(handle))


def _kind_of_gradient(handle: ParameterHandle) -> Value:
    """A value of the kind that this parameter's gradient will have."""
    if handle.grad_stype == "row_sparse":
        return RowSparse.empty(tuple(handle.shape), dtype=handle.dtype)
    return handle.data()


def _environment() -> bool | None:
    text = os.environ.get(ENVIRONMENT_VARIABLE)
    if text is None:
        return None
    try:
        return int(text) != 0
    except ValueError:
        raise ArgumentValueError(
            f"The environment variable {ENVIRONMENT_VARIABLE} is {text!r}, which is no number.",
            advice="Set it to 0 or 1.",
        ) from None
