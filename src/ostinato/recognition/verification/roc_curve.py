"""The curve of true accepts over false accepts, point by point."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.errors import ArgumentValueError


@dataclass(frozen=True, eq=False)
class RocCurve:
    """A receiver operating characteristic: what is accepted from each score on.

    :param far: (n,) accepted pairs of different people, a share of all such pairs; rising from 0 to 1.
    :param tar: (n,) accepted pairs of the same person, a share of all such pairs; rising from 0 to 1.
    :param scores: (n,) the lowest accepted score at each point; infinity at the first, where nothing is accepted.
    """

    far: NDArray[np.float64]
    tar: NDArray[np.float64]
    scores: NDArray[np.float64]

    def nearest(self, target: float) -> tuple[float, float]:
        """Rate of false and of true accepts at the point whose rate of false accepts is nearest to ``target``.

        On ties the larger rate of false accepts wins, and at equal ones the larger rate of true accepts. Nothing is
        interpolated.
        """
        backwards = self.far[::-1]
        index = len(self.far) - 1 - int(np.abs(backwards - target).argmin())
        return float(self.far[index]), float(self.tar[index])

    def at(self, targets: Iterable[float]) -> list[tuple[float, float, float]]:
        """For each target rate of false accepts: the target, and what :meth:`nearest` says."""
        return [(target, self.nearest(target)[1], self.nearest(target)[0]) for target in targets]


def roc_curve(scores: NDArray[np.floating], same: NDArray[np.bool_], *, drop_collinear: bool = True) -> RocCurve:
    """The curve of scored pairs: one point for each distinct score, in descending order, and the origin before them.

    :param scores: (P,) the higher, the more alike; all finite.
    :param same: (P,) the truth.
    :param drop_collinear: leave out points on a straight line between their neighbours where the numbers of accepts
        grow by the same steps. The first and the last stay.
    :raises ArgumentValueError: there are no same or no different pairs, or a score is not finite.
    """
    truth = np.asarray(same, bool)
    positive = int(truth.sum())
    negative = len(truth) - positive
    if not positive or not negative:
        raise ArgumentValueError(
            f"A curve needs pairs of both kinds, and there are {positive:,} same and {negative:,} different ones.",
            advice="Add the missing kind.",
        )
    values = np.asarray(scores, np.float64)
    if not np.isfinite(values).all():
        raise ArgumentValueError(
            f"{int((~np.isfinite(values)).sum()):,} of {len(values):,} scores are not finite.",
            advice="Look for embeddings that are not finite.",
        )
    order = np.argsort(-values, kind="stable")
    values, truth = values[order], truth[order]
    last = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)
    true_accepts = np.cumsum(truth)[last]
    false_accepts = last + 1 - true_accepts
    if drop_collinear and len(last) > 2:
        turns = (np.diff(false_accepts, 2) != 0) | (np.diff(true_accepts, 2) != 0)
        kept = np.flatnonzero(np.concatenate(([True], turns, [True])))
        last, true_accepts, false_accepts = last[kept], true_accepts[kept], false_accepts[kept]
    return RocCurve(
        np.concatenate(([0.0], false_accepts / negative)),
        np.concatenate(([0.0], true_accepts / positive)),
        np.concatenate(([np.inf], values[last])),
    )
