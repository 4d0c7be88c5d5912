"""Starts the exchange of buckets while backward still runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from ostinato.kvstore.buckets import Bucket
from ostinato.kvstore.store import Key


class BackwardWatch:
    """Calls ``launch(bucket, gradients)`` for every bucket whose gradients backward has written, in bucket order.

    Bucket order and not order of arrival: every rank has to start the same exchanges in the same order. A bucket that
    is ready waits for the ones before it. What backward does not complete is left to whoever needs the sums.

    :param parameters: one for each replica, by key.
    :param launch: starts an exchange.
    """

    def __init__(
        self,
        parameters: Mapping[Key, Sequence[Tensor]],
        buckets: Sequence[Bucket],
        launch: Callable[[Bucket, dict[Key, list[Tensor]]], None],
    ) -> None:
        self._parameters = {key: list(replicas) for key, replicas in parameters.items()}
        self._buckets = list(buckets)
        self._launch = launch
        self._bucket_of = {slot.key: bucket for bucket in buckets for slot in bucket.slots}
        self._waiting: dict[Bucket, set[tuple[Key, int]]] = {}
        self._next = 0
        self._holding = 0
        self._hooks: list[RemovableHandle] = []
        for key, replicas in self._parameters.items():
            if key in self._bucket_of:
                for number, parameter in enumerate(replicas):
                    if parameter.requires_grad:
                        hook = self._hook(key, number)
                        self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))
        self.start_over()

    def start_over(self) -> None:
        """Begin a new round: nothing has arrived yet."""
        self._next = 0
        for bucket in self._buckets:
            self._waiting[bucket] = {
                (slot.key, number) for slot in bucket.slots for number in range(len(self._parameters.get(slot.key, ())))
            }

    @contextmanager
    def holding(self) -> Generator[None]:
        """Start nothing inside: what backward writes here is not the last word before the next step."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1

    def close(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _hook(self, key: Key, number: int) -> Callable[[Tensor], None]:
        def written(_: Tensor) -> None:
            if not self._holding:
                self._arrived(key, number)

        return written

    def _arrived(self, key: Key, number: int) -> None:
        self._waiting[self._bucket_of[key]].discard((key, number))
        while self._next < len(self._buckets):
            bucket = self._buckets[self._next]
            if self._waiting[bucket]:
                return
            gradients: dict[Key, list[Tensor]] = {}
            for slot in bucket.slots:
                grads = [parameter.grad for parameter in self._parameters[slot.key]]
                if any(grad is None or grad.layout != torch.strided for grad in grads):
                    return  # rows of a table: they travel another way, which the ranks agree on later
                gradients[slot.key] = [grad for grad in grads if grad is not None]
            self._next += 1
            self._launch(bucket, gradients)
