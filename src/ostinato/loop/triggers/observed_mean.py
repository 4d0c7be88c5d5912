"""The mean of an observed value over an interval, without waiting for a device in between."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import torch

from ostinato.dist import Alone, Group
from ostinato.dist.per_rank import PerRank, RankStates
from ostinato.errors import ArgumentTypeError, ArgumentValueError
from ostinato.loop.reporter import is_scalar, read_scalars

_log = logging.getLogger(__name__)

_MISSING = object()
_MOST_PENDING = 256


class ObservedMean:
    """Adds up ``observation[key]`` until somebody asks for the mean; a pair is (value, weight).

    Numbers are added at once. Tensors are only kept: reading one would make the processor wait for the device, so all
    are read together when the mean is asked for, and added in double precision, in the order in which they came. After
    256 of them (an interval may be long) they are added up on their device, in double precision too where it has it.

    :param key: the name under which the value is reported.
    :param owner: who wants to know; for messages.
    :raises ArgumentTypeError: when the key is no text.
    :raises ArgumentValueError: when it is empty.
    """

    def __init__(self, key: str, owner: str) -> None:
        if not isinstance(key, str):
            raise ArgumentTypeError(f"{owner}: the key must be a text such as 'loss', not {key!r}.", value=key)
        if not key:
            raise ArgumentValueError(
                f"{owner}: the key is empty.", advice="Name a reported value such as 'loss'.", value=key
            )
        self.key = key
        self._owner = owner
        self._warned = False
        self._group: Group = Alone()
        self._loaded: Mapping[str, Any] | RankStates | None = None  # until it is known which rank this is
        self._restart()

    def _restart(self) -> None:
        self._sum = 0.0  # of value * weight
        self._weight = 0.0
        self._count = 0
        self._pending: list[tuple[Any, Any]] = []  # (value, weight); at least one of the two is a tensor
        self._folded: dict[torch.device, tuple[Any, Any]] = {}  # by device: sum of value * weight, sum of weights

    def take(self, observation: Mapping[str, Any]) -> None:
        """Take in the value of this iteration, if there is one.

        What is no number is left out, with one warning.

        :raises ArgumentValueError: for a weight that is a plain number below 0 or not finite.
        """
        value = observation.get(self.key, _MISSING)
        if value is _MISSING:
            return
        weight: Any = 1.0
        if isinstance(value, tuple) and len(value) == 2:
            value, weight = value
        if not is_scalar(value) or not is_scalar(weight):
            if not self._warned:
                self._warned = True
                _log.warning("%s: %r is left out, it is not a number", self._owner, self.key)
            return
        if not isinstance(weight, torch.Tensor):
            weight = float(weight)
            if not 0 <= weight < math.inf:
                raise ArgumentValueError(
                    f"The weight of {self.key!r} must be a number from 0 up, not {weight!r}.", weight=weight
                )
            if weight == 0:
                return
        self._count += 1
        if isinstance(value, torch.Tensor) or isinstance(weight, torch.Tensor):
            self._pending.append((value, weight))
            if len(self._pending) >= _MOST_PENDING:
                self._fold()
        else:
            self._add(float(value), weight)

    def take_mean(self, group: Group) -> float | None:
        """The weighted mean since the last call, over all ranks; ``None`` when no rank has seen a value.

        Waits for the device. A collective: every rank has to call it in the same iteration.
        """
        self._read()
        total, weight, count = self._sum, self._weight, self._count
        self._restart()
        if group.size > 1:
            total, weight, count = group.sum_of([total, weight, float(count)])
        if count == 0:
            return None
        return total / weight if weight > 0 else math.nan

    def initialize(self, group: Group) -> None:
        """Learn which rank this is, after a saved state was loaded: each continues with its own sums.

        Where the number of ranks has changed, every sum that was saved goes on in one of them, so the mean over all is
        the same.
        """
        self._group = group
        loaded, self._loaded = self._loaded, None
        if isinstance(loaded, RankStates):
            self._restart()
            for rank in range(group.rank, loaded.world_size, group.size):
                self._take_sums(loaded.of(rank) or {})
        elif loaded is not None and group.rank > 0:
            self._restart()  # saved by one process; rank 0 has it

    def state_dict(self) -> dict[str, Any] | PerRank:
        """``sum``, ``weight`` and ``count`` of the interval so far, of this rank. Waits for the device."""
        self._read()
        sums = {"sum": self._sum, "weight": self._weight, "count": self._count}
        return PerRank(sums) if self._group.size > 1 else sums

    def load_state_dict(self, state: Mapping[str, Any] | RankStates) -> None:
        """Continue from saved sums; with several ranks once :meth:`initialize` has told which of them this is."""
        self._restart()
        self._loaded = state
        if not isinstance(state, RankStates):
            self._take_sums(state)

    def _take_sums(self, sums: Mapping[str, Any]) -> None:
        self._sum += float(sums.get("sum", 0.0))
        self._weight += float(sums.get("weight", 0.0))
        self._count += int(sums.get("count", 0))

    def _add(self, value: float, weight: float) -> None:
        if weight != 0:  # and not value * 0, which is NaN for an infinite value
            self._sum += value * weight
            self._weight += weight

    def _read(self) -> None:
        """Bring everything to the host, in one transfer per device."""
        pairs, sums = self._pending, list(self._folded.values())
        if not pairs and not sums:
            return
        self._pending, self._folded = [], {}
        parts = [part for pair in (*sums, *pairs) for part in pair]
        numbers = iter(read_scalars(parts))
        read = list(zip(numbers, numbers, strict=True))
        for total, weight in read[: len(sums)]:
            self._sum += total
            self._weight += weight
        for value, weight in read[len(sums) :]:
            self._add(value, weight)

    def _fold(self) -> None:
        """Add up on the devices what is pending, so that it does not fill the memory; waits for nothing."""
        for value, weight in self._pending:
            device = (value if isinstance(value, torch.Tensor) else weight).device
            value, weight = _precise(value, device), _precise(weight, device)
            product = value * weight
            if isinstance(weight, torch.Tensor):
                product = torch.where(weight == 0, torch.zeros_like(weight), product)
            total, weights = self._folded.get(device, (0.0, 0.0))
            self._folded[device] = (total + product, weights + weight)
        self._pending = []


def _precise(number: Any, device: torch.device) -> Any:
    """A number ready to be multiplied on a device: a tensor in double precision where the device has it."""
    if not isinstance(number, torch.Tensor):
        return float(number)
    number = number.detach().reshape(())
    return number.to(device, torch.float32 if device.type == "mps" else torch.float64)
