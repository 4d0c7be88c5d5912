"""True accepts at a given rate of false accepts (TAR at FAR), by folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.data.count_of import count_of
from ostinato.errors import ArgumentValueError
from ostinato.recognition.verification.folds import Fold, require_both_kinds
from ostinato.recognition.verification.threshold_counts import accepted_below, grid, of_the_others, per_fold

THRESHOLDS = grid(0.001, 4000)
"""Of squared distances between embeddings of length 1."""

FIRM = 30
"""From so many false accepts on a rate of them is known to about a third of itself (95 %); with fewer it is rough."""


@dataclass(frozen=True)
class FoldAcceptance:
    """One fold: the threshold at which the other folds have the rate asked for, and what this fold accepts there.

    :param val: accepted same pairs, a share of all same pairs of the fold.
    :param far: accepted different pairs, a share of all different pairs of the fold.
    """

    fold: Fold
    threshold: float
    val: float
    far: float


@dataclass(frozen=True)
class Acceptance:
    """True accepts at one rate of false accepts.

    :param target: the rate of false accepts asked for.
    :param different_pairs: how many pairs of different people there are.
    """

    target: float
    folds: tuple[FoldAcceptance, ...]
    different_pairs: int

    @property
    def tar(self) -> float:
        """The share of same pairs accepted, a mean over the folds, 0 to 1."""
        return float(np.mean([fold.val for fold in self.folds]))

    @property
    def tar_std(self) -> float:
        """Its standard deviation over the folds (of the population)."""
        return float(np.std([fold.val for fold in self.folds]))

    @property
    def far(self) -> float:
        """The share of different pairs accepted in truth, a mean over the folds."""
        return float(np.mean([fold.far for fold in self.folds]))

    @property
    def threshold(self) -> float:
        """The mean of the folds' thresholds, a squared distance."""
        return float(np.mean([fold.threshold for fold in self.folds]))

    @property
    def support(self) -> float:
        """How many of the different pairs may be accepted at this rate: what the number rests on."""
        return self.target * self.different_pairs

    @property
    def is_supported(self) -> bool:
        """Whether the set is large enough to say anything at this rate."""
        return self.support >= 1.0

    @property
    def holds(self) -> bool:
        """Whether about as many different pairs were accepted in truth as asked for. It does not where a network has
        collapsed: then all distances lie between two thresholds, and anything or nothing is accepted."""
        return not self.folds or self.far * self.different_pairs <= 3 * self.support + 10

    @property
    def remark(self) -> str:
        """How far the number can be trusted, in a sentence; empty when it can."""
        pairs = count_of(self.different_pairs, "different pair")
        if not self.is_supported:
            lowest = 100 / self.different_pairs
            return (
                f"{pairs} {'is' if self.different_pairs == 1 else 'are'} too few to say anything below {lowest:.2g} %"
            )
        if not self.holds:
            return "means nothing: far more were accepted in truth, as all distances are nearly the same"
        if self.support < FIRM:
            return f"rests on about {self.support:.0f} of {pairs}: a rough figure"
        return ""


def acceptance_by_folds(
    distances: NDArray[np.float64], same: NDArray[np.bool_], folds: Sequence[Fold], target: float = 1e-3
) -> Acceptance:
    """Find for every fold the threshold at which the other folds accept ``target`` of their different pairs, and count
    what the fold itself accepts there.

    The rate of false accepts is a staircase over the thresholds. Let j be the *last* threshold at which it is at most
    the target; the threshold taken lies between t_j and the next one, by linear interpolation. It is 0 where the rate
    stays below the target everywhere. (The established code had this from an interpolation of SciPy's, which since 1.9
    refuses staircases.)

    :param distances: (P,) squared distances.
    :param same: (P,) the truth.
    :param target: above 0 and below 1.
    :raises ArgumentValueError: the target is none.
    :raises BadInputError: a fold lacks same or different pairs. Fields: ``fold`` (from 1), ``missing``.
    """
    if not 0 < target < 1:
        raise ArgumentValueError(
            f"A rate of false accepts of {target!r} makes no sense.", advice="Give one between 0 and 1.", target=target
        )
    require_both_kinds(same, folds)
    same_count, different_count = per_fold(same, folds), per_fold(~same, folds)
    train_different = of_the_others(different_count)
    train_false = of_the_others(accepted_below(distances, ~same, folds, THRESHOLDS))
    outcomes = []
    for number, fold in enumerate(folds):
        threshold = threshold_at(train_false[number] / train_different[number], target)
        held_out, truth = distances[fold.pairs], same[fold.pairs]
        accepted = held_out < threshold
        outcomes.append(
            FoldAcceptance(
                fold,
                threshold,
                float((accepted & truth).sum() / same_count[number]),
                float((accepted & ~truth).sum() / different_count[number]),
            )
        )
    return Acceptance(target, tuple(outcomes), int(different_count.sum()))


def threshold_at(rates: NDArray[np.float64], target: float) -> float:
    """The threshold at which a rising staircase of rates reaches the target; see :func:`acceptance_by_folds`.

    :param rates: (4000,) at :data:`THRESHOLDS`.
    """
    if rates[-1] < target:
        return 0.0
    last = int(np.searchsorted(rates, target, side="right")) - 1
    if last == len(rates) - 1:
        return float(THRESHOLDS[last])
    below, above = rates[last], rates[last + 1]
    step = THRESHOLDS[last + 1] - THRESHOLDS[last]
    return float(THRESHOLDS[last] + step * (target - below) / (above - below))
