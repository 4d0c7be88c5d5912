"""Going on after a number was not finite: from which state, and with which learning rate.

What a failure was is a line of the run's journal, ``non_finite``; it counts until the next state is committed. What has
been recovered is state of the run (:class:`~ostinato.swap.base_rate.BaseRate`) and committed at once, as a generation
of the iteration it went back to. So a process may be killed at any moment: either the failure is still the last word of
the journal, and the recovery is done again, or it is done and counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ostinato.config.recovery import RecoveryOptions
from ostinato.data.count_of import count_of
from ostinato.errors import DamagedRunError, NonFiniteError
from ostinato.loop import PRIORITY_WRITER, Extension, TrainerView
from ostinato.runs.commit import non_finite_names
from ostinato.runs.content import LoadedGeneration
from ostinato.runs.folder import RunFolder
from ostinato.runs.identity import now
from ostinato.runs.manifest import GenerationName
from ostinato.swap.base_rate import BaseRate
from ostinato.swap.face_folders import Tell
from ostinato.swap.updater import SwapUpdater

EVENT = "non_finite"
"""The journal's word for a failure."""

_MOST_NAMES = 6
_HARDLY = 0.13
"""The share of a learning rate below which a loss that is still not finite has other causes: three recoveries."""


@dataclass(frozen=True)
class Failure:
    """A training that ended because a number was not finite.

    :param iteration: in which it was found.
    :param what: which numbers, such as ``loss/b is nan, loss/b/ssim is nan``.
    """

    iteration: int
    what: str


def note_failure(run: RunFolder, error: NonFiniteError) -> None:
    """Write a failure to the journal."""
    values: Mapping[str, float] = error.fields.get("losses", {})
    names = [str(name) for name in error.fields.get("names", ())]
    # The sum of all sides, and gradients after a loss, are told only where nothing tells more.
    causes = [name for name in names if name.startswith("loss/") and name != "loss/total"] or names
    shown = [f"{name} is {values[name]}" if name in values else name for name in causes[:_MOST_NAMES]]
    what = ", ".join(shown) + (f" and {len(causes) - _MOST_NAMES} more" if len(causes) > _MOST_NAMES else "")
    run.journal.add(EVENT, time=now(), iteration=int(error.fields["iteration"]), what=what)


def pending_failure(run: RunFolder) -> Failure | None:
    """The failure after which no state has been committed yet, or None."""
    for entry in reversed(run.journal.read()[0]):
        if entry.get("event") == "commit" and entry.get("kind") != "error":
            return None
        if entry.get("event") == EVENT:
            iteration = entry.get("iteration")
            return Failure(iteration if isinstance(iteration, int) else 0, str(entry.get("what", "")))
    return None


@dataclass(frozen=True)
class RecoveryPlan:
    """What a recovery does.

    :param loaded: the state to go on from; None to begin anew, where nothing was saved.
    :param rate: the learning rate from now on.
    :param set_aside: generations that are newer, by name; they are kept, below ``generations/set-aside``.
    :param passed_over: why, for each generation that was not good enough, in words.
    """

    loaded: LoadedGeneration | None
    rate: BaseRate
    set_aside: tuple[str, ...]
    passed_over: tuple[str, ...]


def plan_recovery(
    run: RunFolder, newest: LoadedGeneration | None, failure: Failure, options: RecoveryOptions, learning_rate: float
) -> RecoveryPlan:
    """Choose the state to go back to, and the rate. Changes nothing.

    It is the newest generation whose numbers are all finite. One that an earlier recovery went back to, and after which
    nothing could be saved, is passed over if there is an older one: it may be past help already.

    :param newest: what the run would go on from by itself.
    :param learning_rate: ``optimizer.learning_rate`` of the session.
    :raises NonFiniteError: the run has recovered as often as the options allow, or none of its states is good; with all
        the reasons.
    """
    before = saved_rate(newest, learning_rate)
    if len(before.recoveries) >= options.nan_recovery_limit:
        raise _limit_reached(before, failure, options)
    suspect = before.recoveries[-1].went_back_to if before.recoveries else None
    loaded, passed_over = _choose(run, newest, suspect)
    if loaded is None and passed_over:
        raise _nothing_good(failure, passed_over)
    went_back_to = 0 if loaded is None else loaded.iteration
    rate = before.lowered(options.nan_recovery_factor, failure.iteration, went_back_to, failure.what)
    newer = [str(name) for name in run.names() if loaded is not None and name > _name(loaded)]
    return RecoveryPlan(loaded, rate, tuple(newer), tuple(passed_over))


def _choose(
    run: RunFolder, newest: LoadedGeneration | None, suspect: int | None
) -> tuple[LoadedGeneration | None, list[str]]:
    passed_over: list[str] = []
    suspected: LoadedGeneration | None = None
    for name in reversed([name for name in run.names() if not name.error]):
        loaded = newest if newest is not None and _name(newest) == name else _read(run, name)
        problem = "it is damaged" if loaded is None else _not_finite(loaded)
        if problem is None and name.iteration == suspect:
            suspected = suspected or loaded
            problem = "the last recovery went back to it, and nothing could be saved since"
        if problem is None:
            return loaded, passed_over
        passed_over.append(f"{name}: {problem}")
    if suspected is not None:  # there is nothing older, and a lower rate may still help
        return suspected, []
    return None, passed_over


def stored_rate(loaded: LoadedGeneration | None) -> BaseRate | None:
    """The learning rate that a state was saved with; None where it does not tell.

    :raises StateError: what is there is no rate.
    """
    state: Any = None if loaded is None else loaded.state
    try:
        saved = state["trainer"]["updater"]["learning_rate"]
    except (KeyError, TypeError):  # nothing is saved, or by an earlier version
        return None
    return BaseRate.from_state(saved)


def saved_rate(loaded: LoadedGeneration | None, learning_rate: float) -> BaseRate:
    """The learning rate that a saved state goes on with in a session.

    :param learning_rate: ``optimizer.learning_rate`` of the session.
    :raises StateError: the saved one cannot be used.
    """
    stored = stored_rate(loaded)
    return BaseRate(learning_rate) if stored is None else stored.asked(learning_rate)


def carry_out(run: RunFolder, plan: RecoveryPlan, failure: Failure, options: RecoveryOptions, tell: Tell) -> None:
    """Go back, and tell of it. The rate comes into force with :class:`RecoveredRate`."""
    for text in plan.passed_over:
        tell(f"not gone back to generation {text}")
    if plan.loaded is not None and plan.set_aside:
        run.restore(plan.loaded.manifest.generation)
        tell(f"set aside below generations/set-aside, not deleted: {', '.join(plan.set_aside)}")
    place = "the beginning, since nothing was saved" if plan.loaded is None else f"iteration {plan.loaded.iteration:,}"
    before = plan.rate.value / options.nan_recovery_factor
    tell(
        f"recovery {len(plan.rate.recoveries)} of at most {options.nan_recovery_limit} ({failure.what} at iteration "
        f"{failure.iteration:,}): going back to {place}, with the learning rate {plan.rate.value:.3g} in place of "
        f"{before:.3g}; the same batches come again at the same iterations"
    )


class RecoveredRate(Extension):
    """Puts the rate of a recovery into force after the state was restored.

    :param updater: the one that trains.
    :param rate: from now on.
    """

    priority = PRIORITY_WRITER + 100  # before anybody looks at the rate
    name = "recovered_rate"
    trigger = None

    def __init__(self, updater: SwapUpdater, rate: BaseRate) -> None:
        self._updater = updater
        self._rate = rate

    def __call__(self, trainer: TrainerView) -> None:
        """Nothing; all is done before the first update."""

    def initialize(self, trainer: TrainerView) -> None:
        """Do it."""
        self._updater.rate = self._rate


def _read(run: RunFolder, name: GenerationName) -> LoadedGeneration | None:
    try:
        return run.read(str(name))
    except DamagedRunError:
        return None


def _name(loaded: LoadedGeneration) -> GenerationName:
    return loaded.manifest.name


def _not_finite(loaded: LoadedGeneration) -> str | None:
    """Which part of a state holds numbers that are not finite, in words; None when all are."""
    state: Any = loaded.state
    try:
        gradients = state["trainer"]["updater"]["gradients"]
    except (KeyError, TypeError):  # it is of another kind of training, which will be said when it is loaded
        gradients = {}
    parts = (("weights", loaded.model), ("optimizer state", loaded.optimizer), ("collected gradients", gradients))
    for what, tree in parts:
        names = non_finite_names(dict(_tensors(tree, "")))
        if names:
            return f"not all numbers of its {what} are finite ({names[0]})"
    return None


def _tensors(tree: Any, path: str) -> list[tuple[str, torch.Tensor]]:
    if isinstance(tree, torch.Tensor):
        return [(path, tree)]
    if isinstance(tree, Mapping):
        return [found for name, part in tree.items() for found in _tensors(part, f"{path}.{name}" if path else name)]
    if isinstance(tree, (list, tuple)):
        return [found for number, part in enumerate(tree) for found in _tensors(part, f"{path}[{number}]")]
    return []


def _limit_reached(rate: BaseRate, failure: Failure, options: RecoveryOptions) -> NonFiniteError:
    lines = "\n".join(f"  {number}. {recovery}" for number, recovery in enumerate(rate.recoveries, 1))
    times = len(rate.recoveries)
    # Only the factor counts: a rate that was asked for or found since may be too high all the same.
    so = ", so it is hardly the cause" if rate.factor <= _HARDLY else ""
    return NonFiniteError(
        f"The run has recovered {count_of(times, 'time')}, which is all that "
        f"recovery.nan_recovery_limit allows, and has failed again at iteration {failure.iteration:,}: {failure.what}. "
        f"Before:\n{lines}\nThe learning rate is {rate.value:.3g} by now{so}.",
        advice=(
            "Look at the faces of that batch, at the loss functions and at network.mixed_precision, or go back further "
            "with `ostinato runs restore`. When you have changed something, go on from the newest state with --set "
            "recovery.nan_recovery=false and without --recover, or let it recover more often: "
            f"--set recovery.nan_recovery_limit={times + 3}."
        ),
        kind="loss",
        names=[],
        iteration=failure.iteration,
        recoveries=list(rate.recoveries),
    )


def _nothing_good(failure: Failure, passed_over: list[str]) -> NonFiniteError:
    lines = "\n".join(f"  {text}" for text in passed_over)
    return NonFiniteError(
        f"There is no good state to go back to after iteration {failure.iteration:,} ({failure.what}):\n{lines}",
        advice=(
            "Nothing was changed. Put older generations back from a backup or with `ostinato runs restore`; to start "
            "over, choose an empty folder."
        ),
        kind="loss",
        names=[],
        iteration=failure.iteration,
    )
