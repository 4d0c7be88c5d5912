"""The quotient of two sums over an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ostinato.dist import Alone, Group
from ostinato.dist.per_rank import PerRank, RankStates
from ostinato.extensions.interval_means import IntervalMeans
from ostinato.extensions.observed_entries import check_key, value_of
from ostinato.extensions.saved_format import check_format
from ostinato.loop import PRIORITY_EDITOR, Extension, TrainerView, report
from ostinato.loop.inner_trigger import InnerTrigger
from ostinato.loop.triggers.parts import group_of

STATE_FORMAT = 1


class MicroAverage(Extension):
    """Reports the sum of one observed value divided by the sum of another, over all iterations of an interval.

    For what is counted in parts of a batch, such as right answers over words: the mean of the quotients of single
    batches would weigh short batches too much. An iteration in which one of the two is missing does not count; an
    interval with a sum of 0 below the line gives NaN; one without values reports nothing. Every rank reports the
    quotient of its own values.

    :param numerator_key: the observed value above the line.
    :param denominator_key: the observed value below it.
    :param result_key: the name of the quotient in the observation.
    :param trigger: when it is reported and a new interval starts.
    :raises ArgumentTypeError: when an argument has the wrong type.
    :raises ArgumentValueError: for an empty key and a bad text, unit or number.
    """

    trigger = (1, "iteration")
    priority = PRIORITY_EDITOR
    name = "micro_average"

    def __init__(self, numerator_key: str, denominator_key: str, result_key: str, trigger: Any = (1, "epoch")) -> None:
        self._keys = (
            check_key(numerator_key, "MicroAverage", "numerator_key"),
            check_key(denominator_key, "MicroAverage", "denominator_key"),
        )
        self._result_key = check_key(result_key, "MicroAverage", "result_key")
        self._when = InnerTrigger(trigger)
        self._means = IntervalMeans("MicroAverage")
        self._group: Group = Alone()
        self._saved_by_ranks: RankStates | None = None  # until it is known which rank this is

    def initialize(self, trainer: TrainerView) -> None:
        """Take the base line of the inner trigger, and learn which rank this is: each goes on with its own sums."""
        self._when.initialize(trainer)
        self._group = group_of(trainer)
        saved, self._saved_by_ranks = self._saved_by_ranks, None
        if saved is not None:
            self._means.load_state_dict(saved.of(self._group.rank) or {})

    def __call__(self, trainer: TrainerView) -> None:
        """Take in the values of this iteration; report the quotient when it is time."""
        values = {key: value_of(trainer.observation[key]) for key in self._keys if key in trainer.observation}
        if len(values) == len(set(self._keys)):
            self._means.add(values)
        if not self._when(trainer):
            return
        means = self._means.compute()
        self._means.clear()
        if means:
            # Both means are over the same iterations, so their quotient is that of the sums.
            above, below = (means.get(key, math.nan) for key in self._keys)
            report(self._result_key, above / below if below != 0 else math.nan)

    def state_dict(self) -> dict[str, Any]:
        """The sums of the interval so far, and the state of the inner trigger."""
        sums = self._means.state_dict()
        return {
            "format": STATE_FORMAT,
            "keys": list(self._keys),
            "sums": PerRank(sums) if self._group.size > 1 else sums,
            "trigger": self._when.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; sums of other values are dropped.

        :raises ArgumentValueError: when it has another format.
        """
        check_format(state, STATE_FORMAT, "MicroAverage")
        sums = state["sums"] if list(state["keys"]) == list(self._keys) else {}
        self._saved_by_ranks = sums if isinstance(sums, RankStates) else None
        self._means.load_state_dict({} if isinstance(sums, RankStates) else sums)
        self._when.load_state_dict(state["trigger"])
