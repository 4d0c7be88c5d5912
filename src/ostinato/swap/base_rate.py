"""The learning rate that a run is trained with: what was asked for, what was found, and what recoveries have left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ostinato.errors import StateError

_FORMAT = 1


@dataclass(frozen=True)
class Recovery:
    """One time at which the run went back.

    :param failed_at: the iteration whose numbers were not finite.
    :param went_back_to: the iteration of the state it went on from.
    :param rate: the learning rate from then on.
    :param what: what was not finite.
    """

    failed_at: int
    went_back_to: int
    rate: float
    what: str

    def __str__(self) -> str:
        return (
            f"iteration {self.failed_at:,} ({self.what}), back to {self.went_back_to:,} with the learning rate "
            f"{self.rate:.3g}"
        )


@dataclass(frozen=True)
class BaseRate:
    """The rate before the warm-up. It is state: the options alone do not tell it.

    Asking for another ``optimizer.learning_rate`` than before wins over everything that was found or lowered since.

    :param configured: ``optimizer.learning_rate`` as this run was asked to use it.
    :param found: what the search for a learning rate has found; None without one.
    :param factor: what the recoveries have multiplied it with.
    :param recoveries: all of them, over the run's whole life.
    """

    configured: float
    found: float | None = None
    factor: float = 1.0
    recoveries: tuple[Recovery, ...] = ()

    @property
    def value(self) -> float:
        """The rate."""
        return (self.configured if self.found is None else self.found) * self.factor

    def with_found(self, rate: float) -> BaseRate:
        """The same with the result of a search, which makes earlier reductions pointless."""
        return replace(self, found=rate, factor=1.0)

    def lowered(self, factor: float, failed_at: int, went_back_to: int, what: str) -> BaseRate:
        """The same after a recovery."""
        now = replace(self, factor=self.factor * factor)
        recovery = Recovery(failed_at, went_back_to, now.value, what)
        return replace(now, recoveries=(*self.recoveries, recovery))

    def describe(self) -> str:
        """Where the rate comes from, as the end of a sentence; empty where it is the configured one."""
        parts = []
        if self.found is not None:
            parts.append(f"found by the search ({self.found:.3g})" if self.factor != 1.0 else "found by the search")
        if self.factor != 1.0:
            # Reductions of before a rate that was asked for or found since do not count in the factor.
            parts.append(f"lowered to {self.factor:.3g} of {'that' if parts else f'{self.configured:.3g}'} by recovery")
        return ", ".join(parts)

    def state_dict(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {
            "format": _FORMAT,
            "configured": self.configured,
            "found": self.found,
            "factor": self.factor,
            "recoveries": [
                {"failed_at": r.failed_at, "went_back_to": r.went_back_to, "rate": r.rate, "what": r.what}
                for r in self.recoveries
            ],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> BaseRate:
        """What was saved.

        :raises StateError: it is of another format, or holds what is no rate.
        """
        try:
            if state["format"] != _FORMAT:
                raise ValueError(f"format {state['format']!r}")
            found = None if state["found"] is None else float(state["found"])
            recoveries = tuple(
                Recovery(int(r["failed_at"]), int(r["went_back_to"]), float(r["rate"]), str(r["what"]))
                for r in state["recoveries"]
            )
            rate = cls(float(state["configured"]), found, float(state["factor"]), recoveries)
            if not 0 < rate.value < math.inf:
                raise ValueError(f"rate {rate.value}")
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"The saved learning rate cannot be used: {type(error).__name__}: {error}.",
                advice="Continue the run with the version of Ostinato that saved it, or a newer one.",
            ) from error
        return rate

    def asked(self, configured: float) -> BaseRate:
        """What it is for a session that asks for a rate: unchanged for the same, otherwise what is asked for.

        :param configured: ``optimizer.learning_rate`` of the session.
        """
        if configured == self.configured:
            return self
        return BaseRate(configured, recoveries=self.recoveries)
