"""Who applies the optimizer: the store, or every replica for itself? One pure function answers.

*On the store*: the store adds up gradients, updates its weights, and the replicas pull them. *On the replicas*: the
store only adds up, and every replica applies the same optimizer to its own copy.

Whether there is a store at all:

=========================================  =========  ===========================================
``kvstore``                                replicas   store
=========================================  =========  ===========================================
None                                       any        none; replicas are still added up
an object                                  any        that object
a name with ``dist``, or of a plug-in      any        created
``local``, ``device``                      1          none, unless a weight is row-sparse
``local``, ``device``                      2 or more  created
=========================================  =========  ===========================================

Where the update runs, by what was asked for (``update_on_kvstore``). *env* is the variable ``MXNET_UPDATE_ON_KVSTORE``;
``T`` is on the store, ``F`` on the replicas, ``-`` on the replicas because there is no store:

==========================  ===============================  ==========  ==========
dense parameters            None                             True        False
==========================  ===============================  ==========  ==========
no store                    ``-``                            ``-``       ``-``
``local``                   T; F if env is 0 or a parameter  T           F
                            has more than 16 Mi elements
``device``                  T; F if env is 0                 T           F
``dist_sync``,              F; T if env is set and not 0     T           F
``dist_device_sync``
``dist_async``              T                                T           ValueError
cannot run an optimizer     F                                ValueError  F
==========================  ===============================  ==========  ==========

==========================  ===============================  ==========  ==========
row-sparse gradients        None                             True        False
==========================  ===============================  ==========  ==========
no store                    ``-``                            ``-``       ``-``
``local``, ``device``       F                                T           F
any ``dist``                T                                T           ValueError
knows no row-sparse values  ValueError                       ValueError  ValueError
==========================  ===============================  ==========  ==========

A row-sparse *weight* lives on the store: T, or a ValueError when False was asked for, a TypeError without a store or
with an object that knows no row-sparse values, an AssertionError when the store cannot run an optimizer.

An optimizer that takes several weights in one call (``aggregate_num`` above 1) runs on the replicas: None means F then,
True is a ValueError. Where the store *must* update, None stays T and the optimizer takes one weight a call.

Differences from Gluon, each for a reason: without a store True is no failure; a plug-in named for a single replica is
used and not passed over; None is never turned into a False that the user did not say; synchronous distributed training
updates on the replicas unless told otherwise, because all-reduce overlaps with backward. A schedule has no say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ostinato.errors import ArgumentTypeError, ArgumentValueError, ContractError

Sparsity = Literal["dense", "sparse_grad", "sparse_weight"]
"""All dense; dense weights of which some have row-sparse gradients; some weight is row-sparse."""

LARGE_ARRAY = 16 * 1024 * 1024
"""Elements above which the store ``local`` leaves the update to the replicas: host memory is slower than theirs."""


@dataclass(frozen=True)
class StoreTraits:
    """What the decision needs to know about the store that was asked for.

    :param name: canonical name.
    :param is_object: an object was given, not a name.
    :param is_plug_in: it is none of the built-in stores.
    """

    name: str
    is_object: bool = False
    is_plug_in: bool = False
    is_distributed: bool = False
    is_asynchronous: bool = False
    runs_optimizer: bool = True
    takes_row_sparse: bool = True


@dataclass(frozen=True)
class Decision:
    """The answer.

    :param has_store: there is a store.
    :param update_on_kvstore: True on the store, False on the replicas, None on the replicas without a store.
    :param aggregates: the optimizer may take several weights in one call.
    """

    has_store: bool
    update_on_kvstore: bool | None
    aggregates: bool


def check_aggregation(asked: bool | None, aggregates: bool) -> None:
    """Refuse updates on the store with an optimizer that takes several weights in one call.

    :raises ArgumentValueError: that was asked for.
    """
    if asked and aggregates:
        raise ArgumentValueError(
            "update_on_kvstore=True was asked for, and the optimizer takes several weights in one call "
            "(aggregate_num > 1), which works on the replicas only.",
            advice="Give the optimizer aggregate_num=1, or leave update_on_kvstore out.",
        )


def decide(
    store: StoreTraits | None,
    *,
    replicas: int,
    asked: bool | None = None,
    aggregates: bool = False,
    sparsity: Sparsity = "dense",
    largest: int = 0,
    environment: bool | None = None,
) -> Decision:
    """Decide whether there is a store and who updates; see the tables above.

    :param store: the store asked for; None for no store.
    :param replicas: copies of the parameters in this process, at least 1.
    :param asked: ``update_on_kvstore`` as the user gave it.
    :param aggregates: the optimizer takes several weights in one call.
    :param largest: elements of the largest parameter.
    :param environment: the environment variable: False for 0, True for another number, None where it is not set.
    :raises ArgumentValueError: the user asked for what this combination cannot do.
    :raises ArgumentTypeError: a row-sparse weight without a store that can hold it.
    :raises ContractError: a row-sparse weight with a store that cannot run an optimizer.
    """
    check_aggregation(asked, aggregates)
    if sparsity == "sparse_weight":
        return _sparse_weight(store, asked)
    if store is None or not _is_created(store, replicas):
        return Decision(False, None, aggregates)
    if sparsity == "sparse_grad":
        return _sparse_gradient(store, asked, aggregates)
    if store.is_asynchronous and store.runs_optimizer:
        if asked is False:
            raise ArgumentValueError(
                f"update_on_kvstore=False was asked for with {store.name!r}. In asynchronous training every push is "
                "applied when it arrives, so the store has to update.",
                advice="Leave update_on_kvstore out, or use 'dist_sync'.",
            )
        return Decision(True, True, False)
    if asked and not store.runs_optimizer:
        raise ArgumentValueError(
            f"update_on_kvstore=True was asked for, and the store {store.name!r} cannot run an optimizer.",
            advice="Leave update_on_kvstore out, or use one of the built-in stores.",
        )
    if asked is not None:
        return Decision(True, asked, aggregates)
    if aggregates or not store.runs_optimizer or environment is False:
        on_store = False
    elif store.is_distributed:
        on_store = environment is True
    else:
        on_store = not (store.name == "local" and not store.is_object and largest > LARGE_ARRAY)
    return Decision(True, on_store, aggregates)


def _is_created(store: StoreTraits, replicas: int) -> bool:
    return store.is_object or store.is_distributed or store.is_plug_in or replicas > 1


def _sparse_weight(store: StoreTraits | None, asked: bool | None) -> Decision:
    if store is None or (store.is_object and not store.takes_row_sparse):
        given = "no store" if store is None else f"the store {store.name!r}, which knows no row-sparse values"
        raise ArgumentTypeError(
            f"A row-sparse weight lives on the store, and this trainer was given {given}.",
            advice="Give kvstore the name of a built-in store, such as 'local' or 'dist_sync'.",
        )
    if not store.runs_optimizer:
        raise ContractError(
            f"A row-sparse weight is updated on the store, and {store.name!r} cannot run an optimizer.",
            advice="Use one of the built-in stores.",
        )
    if asked is False:
        raise ArgumentValueError(
            "update_on_kvstore=False was asked for, and a row-sparse weight can only be updated on the store.",
            advice="Leave update_on_kvstore out.",
        )
    return Decision(True, True, False)


def _sparse_gradient(store: StoreTraits, asked: bool | None, aggregates: bool) -> Decision:
    if not store.takes_row_sparse:
        raise ArgumentValueError(
            f"Some gradients are row-sparse, and the store {store.name!r} knows no row-sparse values.",
            advice="Use one of the built-in stores, or make the gradients dense (sparse=False).",
        )
    if store.is_distributed and asked is False:
        raise ArgumentValueError(
            f"update_on_kvstore=False was asked for with {store.name!r} and row-sparse gradients, which are updated "
            "on the store there.",
            advice="Leave update_on_kvstore out, or make the gradients dense (sparse=False).",
        )
    if asked is None:
        on_store = store.is_distributed
        return Decision(True, on_store, aggregates and not on_store)
    return Decision(True, asked, aggregates)
