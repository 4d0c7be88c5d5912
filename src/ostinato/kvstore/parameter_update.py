"""One update of a trainer's parameters: gradients are added up and applied, on the store or on the replicas."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from ostinato.errors import ArgumentValueError
from ostinato.kvstore.fresh_gradients import FreshGradients
from ostinato.kvstore.gradient_scale import GradientScale
from ostinato.kvstore.loss_scaler import all_finite
from ostinato.kvstore.parameters import ParameterHandle, some
from ostinato.kvstore.replica_updaters import ReplicaUpdaters
from ostinato.kvstore.store import Store
from ostinato.kvstore.summing import sum_values, write_value
from ostinato.kvstore.weight_versions import WeightVersions

_log = logging.getLogger(__name__)


class ParameterUpdate:
    """The two ways of an update: :meth:`on_store`, or :meth:`add_up` and then :meth:`on_replicas`.

    :param handles: all parameters of the trainer.
    :param updaters: apply the optimizer to the replicas.
    :param versions: are told which weights were written here.
    :param scale: its scaler learns whether gradients were finite; without a scaler they are not looked at.
    :param compresses: gradients travel compressed.
    """

    def __init__(
        self,
        handles: Sequence[ParameterHandle],
        updaters: ReplicaUpdaters,
        versions: WeightVersions,
        scale: GradientScale,
        *,
        compresses: bool,
    ) -> None:
        self.was_skipped = False
        """The last update found gradients that are not finite and changed nothing."""
        self._handles = handles
        self._updaters = updaters
        self._versions = versions
        self._scale = scale
        self._compresses = compresses
        self._overflown: set[int] = set()  # gradients that were not finite before compression, which hides it

    def on_store(self, store: Store, found: FreshGradients) -> None:
        """One exchange: push gradients, let the store update, pull weights."""
        fresh = found.fresh
        for handle in found.replaced:
            store.set_value(handle.index, handle.data())
        self._versions.remember(found.replaced)
        # What other workers did to parameters that have no gradient here has to be pulled; in step there is nothing.
        pulled = found.resting if store.is_asynchronous else []
        if not fresh and not pulled:
            return
        finite = store.pushpull(
            [handle.index for handle in (*fresh, *pulled)],
            [*(handle.gradients(fill=False) for handle in fresh), *([] for _ in pulled)],
            [handle.weights() for handle in (*fresh, *pulled)],
            [-handle.index for handle in (*fresh, *pulled)],
            only_if_finite=self._scale.scaler is not None,
        )
        if fresh and self._is_skipped(overflow=not finite):
            return
        self._versions.remember((*fresh, *pulled))
        for handle in fresh:
            handle.clear_fresh()

    def add_up(self, store: Store | None, unsummed: Sequence[ParameterHandle]) -> None:
        """Make the gradient buffers of every replica the sum over replicas and workers."""
        if not unsummed:
            return
        if store is not None:
            if store.is_distributed:
                _refuse_unannounced_rows(unsummed)
            keys = [handle.index for handle in unsummed]
            # What comes out of compression is finite whatever went in, so this is the last moment to ask.
            asks = self._scale.scaler is not None and self._compresses
            finite = store.pushpull(
                keys,
                [handle.gradients(fill=True) for handle in unsummed],
                priority=[-key for key in keys],
                only_if_finite=asks,
            )
            self._overflown.difference_update(keys)
            if asks and not finite:
                self._overflown.update(keys)
        elif len(self._handles[0].replicas) > 1:
            for handle in unsummed:
                gradients = handle.gradients(fill=True)
                total = sum_values(gradients, handle.devices[0])
                write_value(total, [buffer for buffer in gradients if isinstance(buffer, Tensor)])
        for handle in unsummed:
            handle.mark_reduced()

    def on_replicas(self, store: Store | None, fresh: Sequence[ParameterHandle]) -> None:
        """Run every replica's updater on the gradients in its buffers."""
        if not fresh:
            return
        if self._scale.scaler is not None:
            overflow = any(handle.index in self._overflown for handle in fresh) or not all_finite(
                handle.reduced_gradient(0) for handle in fresh
            )
            if store is not None:
                (overflow,) = store.agree([overflow])
            if self._is_skipped(overflow):
                return
        for handle in self._handles:
            self._follow_replaced(handle)
        self._updaters.update(fresh)
        self._versions.remember(fresh)
        self.was_skipped = False
        for handle in fresh:
            handle.clear_fresh()

    def _follow_replaced(self, handle: ParameterHandle) -> None:
        """Bring the replicas that a replaced weight was not written to up to it, and master copies too."""
        written = self._versions.written(handle)
        if not any(written):
            return
        if not all(written):
            with torch.no_grad():
                for replica in handle.replicas[1:]:
                    replica.copy_(handle.replicas[0])
        self._updaters.weight_replaced(handle)
        self._versions.remember([handle])

    def _is_skipped(self, overflow: bool) -> bool:
        if self._scale.scaler is not None:
            self._scale.scaler.update(overflow)
        self.was_skipped = overflow
        if overflow:
            _log.info(
                "gradients are not finite: the update is skipped, the loss scale is %g now", self._scale.loss_scale
            )
        return overflow


def _refuse_unannounced_rows(handles: Sequence[ParameterHandle]) -> None:
    sparse = [handle.name for handle in handles if handle.grad_stype == "row_sparse"]
    if sparse:
        raise ArgumentValueError(
            f"The gradient of {some(sparse)} is row-sparse, which nobody knew at the first step, and this trainer "
            "updates on the replicas.",
            advice='Announce it before the first step: parameter.grad_stype = "row_sparse".',
            parameters=sparse,
        )
