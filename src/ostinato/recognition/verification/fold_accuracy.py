"""Accuracy by folds: the threshold that is best on the other folds decides on this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.recognition.verification.folds import Fold
from ostinato.recognition.verification.threshold_counts import accepted_below, grid, of_the_others, per_fold

THRESHOLDS = grid(0.01, 400)
"""Of squared distances between embeddings of length 1, which are 0 to 4."""


@dataclass(frozen=True)
class FoldOutcome:
    """One fold.

    :param threshold_index: of the best threshold, in :data:`THRESHOLDS`.
    :param train_accuracy: at that threshold on the other folds, 0 to 1.
    :param accuracy: at that threshold on this fold, 0 to 1.
    """

    fold: Fold
    threshold_index: int
    train_accuracy: float
    accuracy: float

    @property
    def threshold(self) -> float:
        """A pair is taken for the same person if its squared distance is below."""
        return float(THRESHOLDS[self.threshold_index])


@dataclass(frozen=True, eq=False)
class FoldAccuracy:
    """Accuracy by folds.

    :param outcomes: one a fold.
    :param tpr: (400,) at every threshold the share of same pairs that is accepted, a mean over the folds.
    :param fpr: (400,) the same of different pairs.
    """

    outcomes: tuple[FoldOutcome, ...]
    tpr: NDArray[np.float64]
    fpr: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """The mean over the folds, 0 to 1."""
        return float(np.mean([outcome.accuracy for outcome in self.outcomes]))

    @property
    def std(self) -> float:
        """The standard deviation of the folds (of the population: divided by their number)."""
        return float(np.std([outcome.accuracy for outcome in self.outcomes]))

    @property
    def threshold(self) -> float:
        """The mean of the folds' thresholds, a squared distance."""
        return float(np.mean([outcome.threshold for outcome in self.outcomes]))


def accuracy_by_folds(distances: NDArray[np.float64], same: NDArray[np.bool_], folds: Sequence[Fold]) -> FoldAccuracy:
    """Judge every fold by the threshold at which the other folds have the highest accuracy, the lowest such one.

    :param distances: (P,) squared distances.
    :param same: (P,) the truth.
    :param folds: see :func:`~ostinato.recognition.verification.folds.cut_folds`.
    """
    true_accepts = accepted_below(distances, same, folds, THRESHOLDS)
    false_accepts = accepted_below(distances, ~same, folds, THRESHOLDS)
    same_count, different_count = per_fold(same, folds), per_fold(~same, folds)
    right = true_accepts + (different_count[:, None] - false_accepts)
    count = same_count + different_count
    # Whole numbers of right answers have exact ties; the first of them is taken.
    train_right, train_count = of_the_others(right), of_the_others(count)
    best = train_right.argmax(axis=1)
    outcomes = tuple(
        FoldOutcome(
            fold,
            int(index),
            float(train_right[number, index] / train_count[number]),
            float(right[number, index] / count[number]),
        )
        for number, (fold, index) in enumerate(zip(folds, best, strict=True))
    )
    tpr = true_accepts / np.maximum(same_count, 1)[:, None]
    fpr = false_accepts / np.maximum(different_count, 1)[:, None]
    return FoldAccuracy(outcomes, tpr.mean(axis=0), fpr.mean(axis=0))
