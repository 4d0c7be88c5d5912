"""Sessions: which stretch of a run was trained by which launch, and with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Session:
    """One process' stretch of a run.

    :param number: 1 or one more than the highest number before.
    :param started: ISO 8601, UTC.
    :param start_iteration: completed updates of the run when it began.
    :param iterations: updates made in it, up to the generation that tells of it.
    :param batch_size: samples in one update, per side where there are sides.
    :param options: the updatable options, by dotted path.
    :param config: all options as they were in effect, nested.
    """

    number: int
    started: str
    start_iteration: int = 0
    iterations: int = 0
    batch_size: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def at(self, iteration: int) -> Session:
        """The session as it stands when the run has ``iteration`` completed updates."""
        return replace(self, iterations=max(0, iteration - self.start_iteration))

    def to_json(self) -> dict[str, Any]:
        """For the state file."""
        return {
            "number": self.number,
            "started": self.started,
            "start_iteration": self.start_iteration,
            "iterations": self.iterations,
            "batch_size": self.batch_size,
            "options": dict(self.options),
            "config": dict(self.config),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Session:
        """From the state file.

        :raises ValueError: a value is not what it must be; also KeyError and TypeError.
        """
        return cls(
            number=int(raw["number"]),
            started=str(raw["started"]),
            start_iteration=int(raw["start_iteration"]),
            iterations=int(raw["iterations"]),
            batch_size=int(raw["batch_size"]),
            options=dict(raw["options"]),
            config=dict(raw["config"]),
        )


def next_number(sessions: Sequence[Session]) -> int:
    """The number of a new session."""
    return max((session.number for session in sessions), default=0) + 1


def sessions_at_save(before: Sequence[Session], current: Session | None, iteration: int) -> list[Session]:
    """What a generation records: the sessions so far, without those in which nothing was trained."""
    running = [] if current is None else [current.at(iteration)]
    return [session for session in [*before, *running] if session.iterations > 0]
