"""How many pairs are accepted at every threshold of a grid, fold by fold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ostinato.recognition.verification.folds import Fold

Counts = NDArray[np.int64]


def grid(step: float, count: int) -> NDArray[np.float64]:
    """The thresholds ``step * k`` for k = 0 to ``count`` - 1, of squared distances."""
    return step * np.arange(count, dtype=np.float64)


def accepted_below(
    distances: NDArray[np.float64], chosen: NDArray[np.bool_], folds: Sequence[Fold], thresholds: NDArray[np.float64]
) -> Counts:
    """In each fold, how many of the chosen pairs lie strictly below each threshold.

    :param distances: (P,) squared distances.
    :param chosen: (P,) the pairs that count.
    :returns: (folds, thresholds).
    """
    rows = []
    for fold in folds:
        inside = np.sort(distances[fold.pairs][chosen[fold.pairs]])
        rows.append(np.searchsorted(inside, thresholds, side="left"))
    return np.asarray(rows, np.int64)


def per_fold(chosen: NDArray[np.bool_], folds: Sequence[Fold]) -> Counts:
    """How many of the chosen pairs each fold has, (folds,)."""
    return np.asarray([chosen[fold.pairs].sum() for fold in folds], np.int64)


def of_the_others(counts: Counts) -> Counts:
    """For each fold (row) the sum over the other folds. A single fold is its own training set."""
    return counts if len(counts) == 1 else counts.sum(axis=0) - counts
