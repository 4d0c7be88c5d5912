"""Decisions that several ranks have to take together (RK-4).

Which extensions run in an iteration, and whether the run ends with it, has to be the same on every rank, or they wait
for each other for ever. A trigger that reads the counters gives the same answer everywhere. The answer of any other is
taken by rank 0 and sent to all, together with the wish to stop that any rank may have: one message in an iteration in
which something of the kind is due, and none in the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ostinato.dist import Group
from ostinato.loop.notes import add_note
from ostinato.loop.registration import describe_trigger
from ostinato.loop.shared_trigger import TriggerStandIn
from ostinato.loop.triggers.limit_trigger import LimitTrigger
from ostinato.loop.triggers.time_trigger import TimeTrigger
from ostinato.loop.triggers.trigger import Trigger, decided_by

if TYPE_CHECKING:
    from ostinato.loop.protocols import TrainerView, TriggerFunction

AGREE_EVERY = 10
"""Iterations between two agreements on time, signals and requests to stop, in a world of several ranks."""


class Agreement:
    """What one run of several ranks agrees on.

    All questions of an iteration are answered together, when the turn of the first of them comes. What an extension
    reports later in that iteration is not seen by them.

    :param group: the ranks.
    :param every: time triggers and wishes to stop are asked about every so many iterations.
    :param accept_stop: called with the reason, on every rank in the same iteration, when one of them wants to stop.
    """

    def __init__(self, group: Group, every: int, accept_stop: Callable[[str], None]) -> None:
        self.wish: str | None = None
        """Why this rank wants to stop."""
        self._group = group
        self.every = every
        self._accept_stop = accept_stop
        self._questions: list[_Question] = []
        self._observation: Any = None  # every iteration has a new one; that of the last exchange
        self._is_opening = True  # until the stop trigger was asked for the first time, before the first update

    def on(self, trigger: TriggerFunction, stops: bool) -> TriggerFunction:
        """What a trigger is replaced by: itself, or a question of this agreement.

        :param stops: whether it is the stop trigger or a part of it.
        """
        if decided_by(trigger) != "rank0":
            return trigger
        # Time passes slowly; anything else may be true for one iteration only.
        every = self.every if isinstance(trigger, TimeTrigger | LimitTrigger) else 1
        question = _Question(trigger, self, every, stops)
        self._questions.append(question)
        return question

    def with_wishes(self, stop_trigger: TriggerFunction) -> TriggerFunction:
        """The stop trigger, asked as before; in its turn the ranks also tell each other whether they want to stop."""
        return _AskedWithWishes(stop_trigger, self)

    def is_due(self, every: int, stops: bool, trainer: TrainerView) -> bool:
        """Whether a question is answered in this iteration."""
        if self._is_opening:
            return stops
        return trainer.updater.state.iteration % every == 0

    def exchange(self, trainer: TrainerView) -> None:
        """Answer everything that is due in this iteration, unless that has happened already. A collective."""
        if trainer.observation is self._observation:
            return
        self._observation = trainer.observation
        due = [question for question in self._questions if question.is_due(trainer)]
        mine = [float(self._group.rank == 0 and bool(question.ask(trainer))) for question in due]
        wish = self.wish  # read once: a signal may come at any time
        asks_wishes = self.is_due(self.every, True, trainer)
        if asks_wishes:
            mine.append(0.0 if wish is None else 1.0)
        sums = self._group.sum_of(mine)
        for question, answer in zip(due, sums, strict=False):
            question.answer = answer > 0
        if asks_wishes and sums[-1] > 0:
            self._accept_stop(next(reason for reason in self._group.gather(wish) if reason is not None))

    def end_opening(self) -> None:
        """From now on every question has its turn."""
        self._is_opening = False


class _Question(TriggerStandIn):
    """Stands for a trigger whose answer comes from rank 0."""

    decided = "counters"  # whoever combines the answer with others need not agree on it again

    def __init__(self, trigger: TriggerFunction, agreement: Agreement, every: int, stops: bool) -> None:
        super().__init__(trigger)
        self.answer = False
        self._agreement = agreement
        self._every = every
        self._stops = stops

    def is_due(self, trainer: TrainerView) -> bool:
        return self._agreement.is_due(self._every, self._stops, trainer)

    def ask(self, trainer: TrainerView) -> bool:
        try:
            # An extension may ask the trigger too, as its own; both get the same answer on this rank.
            return self.trigger.ask_once(trainer) if isinstance(self.trigger, Trigger) else self.trigger(trainer)
        except BaseException as error:
            add_note(error, f"while asking the trigger {describe_trigger(self.trigger)}")
            raise

    def __call__(self, trainer: TrainerView) -> bool:
        if not self.is_due(trainer):
            return False
        self._agreement.exchange(trainer)
        return self.answer


class _AskedWithWishes(TriggerStandIn):
    """Stands for the stop trigger: every iteration asks it exactly once, after the ordinary extensions."""

    def __init__(self, trigger: TriggerFunction, agreement: Agreement) -> None:
        super().__init__(trigger)
        self._agreement = agreement

    def __call__(self, trainer: TrainerView) -> bool:
        finished = self.trigger(trainer)
        if self._agreement.is_due(self._agreement.every, True, trainer):
            self._agreement.exchange(trainer)
        self._agreement.end_opening()
        return finished
