"""Losses that have been noted and not read yet."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.extensions.observed_entries import value_of
from ostinato.loop import is_scalar, read_scalars

_MOST_PENDING = 1000


@dataclass(frozen=True)
class NotedLosses:
    """The losses of one iteration.

    :param iteration: number of completed updates.
    :param losses: what was observed, by name.
    :param files: what the updater says of the batch, ``None`` where it says nothing.
    """

    iteration: int
    losses: Mapping[str, Any]
    files: Any = None

    def read(self) -> dict[str, float]:
        """The numbers among the losses, in one transfer."""
        scalars = {name: value_of(entry) for name, entry in self.losses.items() if is_scalar(value_of(entry))}
        return dict(zip(scalars, read_scalars(list(scalars.values())), strict=True))


class PendingLosses:
    """Keeps the losses of every iteration until somebody reads them all together.

    Reading makes the processor wait for the device, so an accelerator is spared by reading seldom.
    """

    def __init__(self) -> None:
        self._noted: list[NotedLosses] = []

    def note(self, noted: NotedLosses) -> None:
        """Keep the losses of an iteration."""
        self._noted.append(noted)

    @property
    def is_full(self) -> bool:
        """Whether there are so many that they should be read whatever the time."""
        return len(self._noted) >= _MOST_PENDING

    def take_first_not_finite(self, keys: Collection[str] | None = None) -> NotedLosses | None:
        """Read everything and forget it; the first iteration in which a loss was not a finite number, if there is one.

        :param keys: look at the losses of these names only, as far as they were observed.
        """
        noted, self._noted = self._noted, []
        owners: list[NotedLosses] = []
        values: list[Any] = []
        for entry in noted:
            watched = [value for name, value in entry.losses.items() if keys is None or name in keys]
            for value in map(value_of, watched):
                if is_scalar(value):
                    owners.append(entry)
                    values.append(value)
        for entry, number in zip(owners, read_scalars(values), strict=True):
            if not math.isfinite(number):
                return entry
        return None
