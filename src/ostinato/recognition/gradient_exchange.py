"""What the ranks tell each other about the backbone in one update: gradients are summed, statistics are averaged."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ostinato.dist import Group
from ostinato.kvstore.collective import CollectiveStore
from ostinato.kvstore.collective_calls import Timing

_STATISTICS = "running statistics"


class GradientExchange:
    """Sums the gradients of a model over the ranks, and averages the running statistics of its batch norms with them.

    Gradients travel in buckets while backward still runs. What each rank's gradient is of (a share of the global mean
    loss, say) is the caller's business: nothing is divided here.

    Each rank normalises with its own part of a batch, so the running means and variances drift apart. Here they become
    the average over the ranks, weighted by their numbers of images, in every update: any rank's are as good as any
    other's, whenever they are saved, and a continued run has the same ones as an undisturbed one. Means come out as if
    one rank had seen all images; variances are the average of those within each rank's part.

    Memory: one copy of the gradients, in the buckets, and of the statistics. A group of one does nothing at all.

    :param model: the same on all ranks, on its device.
    :param group: the ranks. Of several, their torch.distributed is used.
    """

    def __init__(self, model: nn.Module, group: Group) -> None:
        self._model = model
        self._store = None if group.size == 1 else CollectiveStore(group=group)
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._statistics = running_statistics(model)

    @property
    def handed_over(self) -> int:
        """Bytes that this rank has handed to collectives so far."""
        return 0 if self._store is None else sum(self._store.handed_over.values())

    def time_collectives(self, timing: Timing) -> None:
        """See :meth:`ostinato.kvstore.collective.CollectiveStore.time_collectives`."""
        if self._store is not None:
            self._store.time_collectives(timing)

    def open(self) -> None:
        """Give all ranks the weights and statistics of rank 0. A collective; comes before the first forward pass."""
        store = self._store
        if store is None:
            return
        weights = {name: p.data for name, p in self._parameters.items()}
        store.broadcast(list(weights), [[w] for w in weights.values()], [[w] for w in weights.values()])
        if self._statistics:
            flat = _flat(self._statistics)
            store.broadcast([_STATISTICS], [[flat]], [[flat]])
            _spread(flat, self._statistics)
        store.watch({name: [p] for name, p in self._parameters.items()})

    def holding(self) -> AbstractContextManager[None]:
        """Inside this, backward starts no exchange: further passes add to the gradients."""
        return nullcontext() if self._store is None else self._store.holding()

    def exchange(self, images: int) -> None:
        """Make every gradient the sum over the ranks, and the statistics their average. A collective.

        :param images: what this rank's statistics are of, for their weight.
        """
        store = self._store
        if store is None:
            return
        # A parameter that the model does not use has no gradient, on no rank.
        keys = [name for name, p in self._parameters.items() if p.grad is not None]
        values = [[p.grad] for p in self._parameters.values() if p.grad is not None]
        flat: Tensor | None = None
        if self._statistics:
            flat = _flat(self._statistics)
            flat *= images
            flat[-1] = images
            keys.append(_STATISTICS)
            values.append([flat])
        store.pushpull(keys, values)
        if flat is not None:
            flat /= flat[-1].clone()
            _spread(flat, self._statistics)


def running_statistics(model: nn.Module) -> list[Tensor]:
    """The running means and variances of a model's batch norms, in the order of its modules."""
    return [
        statistic
        for module in model.modules()
        if isinstance(module, _BatchNorm)
        for statistic in (module.running_mean, module.running_var)
        if statistic is not None
    ]


def _flat(tensors: list[Tensor]) -> Tensor:
    """All of them in a row, and one place more."""
    return torch.cat([*(tensor.reshape(-1) for tensor in tensors), tensors[0].new_zeros(1)])


def _spread(flat: Tensor, tensors: list[Tensor]) -> None:
    with torch.no_grad():
        start = 0
        for tensor in tensors:
            tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
            start += tensor.numel()
