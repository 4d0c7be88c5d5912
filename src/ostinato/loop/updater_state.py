"""The counters of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any

from ostinato.errors import ArgumentValueError, StateError


@dataclass(slots=True)
class UpdaterState:
    """How far a run has come. All numbers count *completed* work, over all ranks."""

    iteration: int = 0
    """Parameter updates."""
    epoch: int = 0
    """Passes over the training data."""
    iteration_in_epoch: int = 0
    """Updates of the pass that is under way."""
    samples: int = 0
    """Samples consumed; stays 0 where batches have no known size."""
    samples_in_epoch: int = 0
    """Samples consumed by the pass that is under way."""
    updates_per_epoch: int | None = None
    """Updates in one pass; ``None`` while that is unknown."""
    tokens: int | None = None
    """Tokens consumed; ``None`` for an updater that does not count them."""

    @property
    def epoch_detail(self) -> Fraction | None:
        """The exact position in passes (2 1/3: two passes and a third); ``None`` when the length is unknown."""
        if not self.updates_per_epoch:
            return None
        return Fraction(self.epoch * self.updates_per_epoch + self.iteration_in_epoch, self.updates_per_epoch)

    @property
    def exact_epoch(self) -> Fraction:
        """:attr:`epoch_detail`, for those who cannot do without.

        :raises StateError: when the length of a pass is unknown.
        """
        position = self.epoch_detail
        if position is None:
            raise StateError(
                "A fraction of an epoch was asked for, and the length of a pass is unknown.",
                advice="Count in iterations, use a whole number of epochs, or train from a loader that has a length.",
            )
        return position

    def advance(self, samples: int = 0, tokens: int = 0, *, pass_complete: bool | None = None) -> None:
        """Count one completed update.

        :param samples: samples of this update, over all ranks.
        :param tokens: tokens of this update, over all ranks; only counted where ``tokens`` is not ``None``.
        :param pass_complete: whether this update ended the pass; by default told from ``updates_per_epoch``.
        """
        self.iteration += 1
        self.iteration_in_epoch += 1
        self.samples += samples
        self.samples_in_epoch += samples
        if self.tokens is not None:
            self.tokens += tokens
        if pass_complete is None:
            pass_complete = self.updates_per_epoch is not None and self.iteration_in_epoch >= self.updates_per_epoch
        if pass_complete:
            self.end_pass()

    def end_pass(self) -> None:
        """The pass is over: ``epoch`` rises and the counters of the pass start at 0."""
        self.epoch += 1
        self.iteration_in_epoch = 0
        self.samples_in_epoch = 0

    def state_dict(self) -> dict[str, int | None]:
        """The counters by name."""
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over saved counters. Counters that the saved state does not know keep their value.

        :raises ArgumentValueError: for a counter that is not a whole number from 0 up. Nothing is changed then.
        """
        taken: dict[str, int | None] = {}
        for field in fields(self):
            if field.name not in state:
                continue
            value = state[field.name]
            optional = field.name in ("updates_per_epoch", "tokens")
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
            if not whole and not (value is None and optional):
                raise ArgumentValueError(
                    f"The saved counter {field.name} is {value!r}, not a whole number from 0 up.",
                    advice="The saved state is damaged or of another kind; load another one.",
                    name=field.name,
                    value=value,
                )
            taken[field.name] = value
        for name, value in taken.items():
            setattr(self, name, value)
