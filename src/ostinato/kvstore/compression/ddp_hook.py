"""Gradient compression as a communication hook of DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ostinato.errors import StateError
from ostinato.kvstore.collective_calls import Collectives
from ostinato.kvstore.compression.exchange import Route, begin_sum, cheaper_route
from ostinato.kvstore.compression.quantising import is_finite
from ostinato.kvstore.compression.residuals import Compressor
from ostinato.kvstore.compression.scheme import CompressionScheme


class CompressionHook:
    """Lets DistributedDataParallel exchange one or two bits an element.

    ::

        hook = CompressionHook(CompressionScheme("2bit", 0.5), model.named_parameters())
        ddp = DistributedDataParallel(model)
        ddp.register_comm_hook(hook, CompressionHook.exchange)

    Every rank's gradient meets the threshold as it is; the decoded values are added up and, as DistributedDataParallel
    has it, divided by the number of ranks. A bucket that is not finite on one rank comes out as NaN on all of them, so
    that a loss scaler sees it; the elements that are not finite leave nothing in the residuals. The exchange of a
    bucket is waited for where it is asked for: it overlaps with nothing, and is 16 or 32 times smaller.

    Residuals belong to parameters, not to buckets: DistributedDataParallel lays its buckets out anew after the first
    iteration. They are this rank's own state and have to be saved per rank.

    :param scheme: type and threshold.
    :param named_parameters: those of the module that is wrapped; the names are used in ``state_dict``.
    :param process_group: the group that DistributedDataParallel was given; ``None`` for the default group.
    :param route: see :data:`Route`; the one with less traffic if left out.
    """

    def __init__(
        self,
        scheme: CompressionScheme,
        named_parameters: Iterable[tuple[str, Tensor]],
        process_group: dist.ProcessGroup | None = None,
        route: Route | None = None,
    ) -> None:
        self.compressor = Compressor(scheme)
        self._names = {id(parameter): (name, parameter) for name, parameter in named_parameters}
        self._process_group = process_group
        self._collectives: Collectives | None = None
        self._route = route

    def exchange(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Exchange one bucket; called by DistributedDataParallel.

        :raises StateError: the bucket holds a parameter that was not named.
        """
        if self._collectives is None:
            self._collectives = Collectives(self._process_group or dist.group.WORLD)
        collectives, scheme, gradients = self._collectives, self.compressor.scheme, bucket.buffer()
        layout = [(self._name(parameter), parameter.numel()) for parameter in bucket.parameters()]
        finite = is_finite(gradients)
        packed = self.compressor.compress_together(layout, gradients)
        votes = (~finite).to(torch.float32).reshape(1).to(gradients.device)
        voting = collectives.all_reduce(votes)
        pending = begin_sum(
            scheme, packed, len(gradients), collectives, self._route or cheaper_route(scheme, collectives.size)
        )
        total = pending.finish(gradients)
        voting.wait()
        # 0 / 0 where a rank had something that is not finite, without asking the device which it was.
        total.mul_(
            torch.where(votes > 0, torch.full_like(votes, torch.nan), torch.full_like(votes, 1 / collectives.size))
        )
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(total)
        return future

    def _name(self, parameter: Tensor) -> str:
        try:
            return self._names[id(parameter)][0]
        except KeyError:
            raise StateError(
                f"A bucket holds a parameter of shape {tuple(parameter.shape)} that the compression hook was not told.",
                advice="Give it named_parameters() of the module that DistributedDataParallel wraps.",
            ) from None

    def state_dict(self) -> dict[str, Any]:
        """The residuals of this rank by parameter name."""
        return self.compressor.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take residuals back; see :meth:`Compressor.load_state_dict`."""
        self.compressor.load_state_dict(state)


# DistributedDataParallel compares the annotations with these types themselves, and here all annotations are text.
CompressionHook.exchange.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[Tensor]})
