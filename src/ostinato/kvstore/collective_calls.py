"""The tensor collectives that stores use, each counted in bytes, and timed where somebody asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from ostinato.dist import Group, detect_placement


def _first_of(*names: str) -> Callable[..., Any]:
    return next(getattr(dist, name) for name in names if hasattr(dist, name))


# The tensor forms were renamed in torch 2.13; the old names warn there.
_all_gather_flat = _first_of("all_gather_single", "all_gather_into_tensor")
_reduce_scatter_flat = _first_of("reduce_scatter_single", "reduce_scatter_tensor")


def seat_in(group: Group | None) -> tuple[int, int]:
    """Rank and number of workers, as far as they can be known without meeting the others.

    :param group: the workers; ``None`` for those of this process.
    """
    if group is not None:
        return group.rank, group.size
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    placement = detect_placement()
    return (0, 1) if placement is None else (placement.rank, placement.size)


class Pending(Protocol):
    """A collective that may still be running."""

    def wait(self) -> object:
        """Wait for it. Raises what went wrong."""
        ...


class _Done:
    def wait(self) -> None: ...


class _SumOfParts:
    """Slices on their way from all ranks, to be added up in rank order."""

    def __init__(self, total: Tensor, parts: Tensor, running: Pending) -> None:
        self._total, self._parts, self._running = total, parts, running

    def wait(self) -> None:
        self._running.wait()
        first, *others = self._parts.chunk(len(self._parts) // len(self._total))
        self._total.copy_(first)
        for part in others:
            self._total.add_(part)


class _Timed:
    """A collective the waits for which are timed."""

    def __init__(self, running: Pending, timing: Timing) -> None:
        self._running, self._timing = running, timing

    def wait(self) -> None:
        with self._timing():
            self._running.wait()


DONE: Pending = _Done()
"""What is not running any more."""

Timing = Callable[[], AbstractContextManager[object]]


class Collectives:
    """Tensor collectives over one process group. Every rank makes the same calls in the same order.

    :param process_group: ranks to exchange with; ``None`` for one process alone, where every call is a copy.

    :ivar handed_over: bytes that this rank has handed to each kind of call so far, by the call's name. A ring sends
        about ``2 (size - 1) / size`` times that for ``all_reduce``, ``(size - 1)`` times for ``all_gather``, and
        ``(size - 1) / size`` times for the others.
    :ivar timing: makes a context that is entered around each call and around each wait for one, by somebody who wants
        to know how long they take; ``None`` for nobody.
    """

    def __init__(self, process_group: dist.ProcessGroup | None) -> None:
        self.process_group = process_group
        self.rank = 0 if process_group is None else dist.get_rank(process_group)
        self.size = 1 if process_group is None else dist.get_world_size(process_group)
        self.handed_over: Counter[str] = Counter()
        self.timing: Timing | None = None

    def all_reduce(self, tensor: Tensor, operation: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Pending:
        """Make ``tensor`` on every rank the sum (or another reduction) over the ranks; the same bits everywhere."""
        self._count("all_reduce", tensor)
        if self.process_group is None:
            return DONE
        return self._begun(lambda: dist.all_reduce(tensor, op=operation, group=self.process_group, async_op=True))

    def reduce(self, tensor: Tensor, owner: int) -> Pending:
        """Make ``tensor`` on rank ``owner`` the sum over the ranks. Elsewhere it holds nothing of use."""
        self._count("reduce", tensor)
        if self.process_group is None:
            return DONE
        return self._begun(lambda: dist.reduce(tensor, group=self.process_group, group_dst=owner, async_op=True))

    def reduce_scatter(self, own: Tensor, whole: Tensor) -> Pending:
        """Put into ``own`` this rank's slice of the sum over ranks of ``whole``: (size * len(own),)."""
        self._count("reduce_scatter", whole)
        if self.process_group is None:
            own.copy_(whole)
            return DONE
        if dist.get_backend(self.process_group) == "gloo" or whole.device.type == "cpu":
            # Gloo's own reduce-scatter sends half as much again as a ring (measured with two ranks, torch 2.13).
            parts = torch.empty_like(whole)
            return _SumOfParts(own, parts, self._all_to_all(parts, whole))
        return self._begun(lambda: _reduce_scatter_flat(own, whole, group=self.process_group, async_op=True))

    def all_gather(self, whole: Tensor, own: Tensor) -> Pending:
        """Put into ``whole`` every rank's ``own``, in rank order: (size * len(own),)."""
        self._count("all_gather", own)
        if self.process_group is None:
            whole.copy_(own)
            return DONE
        return self._begun(lambda: _all_gather_flat(whole, own, group=self.process_group, async_op=True))

    def all_to_all(
        self,
        received: Tensor,
        sent: Tensor,
        received_sizes: list[int] | None = None,
        sent_sizes: list[int] | None = None,
    ) -> Pending:
        """Send the k-th part of ``sent`` to rank k and put what came from there into the k-th part of ``received``.

        :param received_sizes: first-dimension sizes of the parts; equal parts if left out. ``sent_sizes`` likewise.
        """
        self._count("all_to_all", sent)
        if self.process_group is None:
            received.copy_(sent)
            return DONE
        return self._all_to_all(received, sent, received_sizes, sent_sizes)

    def _all_to_all(
        self,
        received: Tensor,
        sent: Tensor,
        received_sizes: list[int] | None = None,
        sent_sizes: list[int] | None = None,
    ) -> Pending:
        group = self.process_group
        return self._begun(
            lambda: dist.all_to_all_single(received, sent, received_sizes, sent_sizes, group=group, async_op=True)
        )

    def broadcast(self, tensor: Tensor, source: int = 0) -> Pending:
        """Make ``tensor`` on every rank what it is on rank ``source``."""
        self._count("broadcast", tensor)
        if self.process_group is None:
            return DONE
        return self._begun(lambda: dist.broadcast(tensor, group=self.process_group, group_src=source, async_op=True))

    def timed(self) -> AbstractContextManager[object]:
        """The context of :attr:`timing`, for what ranks tell each other beside this object."""
        return nullcontext() if self.timing is None else self.timing()

    def _begun(self, begin: Callable[[], Pending | None]) -> Pending:
        if self.timing is None:
            return begin() or DONE
        with self.timed():
            running = begin() or DONE
        return _Timed(running, self.timing)

    def _count(self, call: str, tensor: Tensor) -> None:
        self.handed_over[call] += tensor.numel() * tensor.element_size()
