"""Verification of pairs: how well distances between embeddings tell the same person from different people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ostinato.errors import ArgumentValueError, NonFiniteError
from ostinato.recognition.verification.acceptance import Acceptance, acceptance_by_folds
from ostinato.recognition.verification.fold_accuracy import FoldAccuracy, accuracy_by_folds
from ostinato.recognition.verification.folds import FOLDS, checked_folds
from ostinato.recognition.verification.roc_curve import RocCurve, roc_curve

FAR_TARGETS = (1e-1, 1e-2, 1e-3)
"""Rates of false accepts that are reported unless others are asked for; 1e-3 is the customary one."""

_NAMED_AT_MOST = 5


@dataclass(frozen=True, eq=False)
class PairMeasurements:
    """What verification needs to know of embeddings, in pair order.

    :param distances: (P,) squared distances between the final embeddings of a pair: plain and mirrored added, and
        brought to length 1.
    :param norms: (2P, 2) lengths of the raw embeddings of a picture, plain and mirrored.
    :param zero: (2P,) whether a picture's final embedding is zero, pair p being entries 2p and 2p + 1.
    :param finite: (2P,) whether both raw embeddings of a picture are finite.
    """

    distances: NDArray[np.float64]
    norms: NDArray[np.float64]
    zero: NDArray[np.bool_]
    finite: NDArray[np.bool_]

    @classmethod
    def joined(cls, parts: Sequence[PairMeasurements]) -> PairMeasurements:
        """Those of consecutive pairs as one."""
        return cls(
            np.concatenate([part.distances for part in parts]),
            np.concatenate([part.norms for part in parts]),
            np.concatenate([part.zero for part in parts]),
            np.concatenate([part.finite for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class VerificationResult:
    """What verification of a set of pairs says.

    :param accuracy: by folds.
    :param acceptances: true accepts at each rate of false accepts asked for.
    :param xnorm: the mean length of the raw embeddings; a network that collapses shows here.
    :param pairs: how many there are.
    :param same_pairs: how many of them show the same person.
    :param zero_embeddings: pictures whose embedding is zero, counted once for each pair that they are in. Such a
        picture has the distance 1 to everybody.
    :param roc: over all pairs at once, every point of it; scores are negative squared distances.
    """

    accuracy: FoldAccuracy
    acceptances: tuple[Acceptance, ...]
    xnorm: float
    pairs: int
    same_pairs: int
    zero_embeddings: int
    roc: RocCurve = field(repr=False)

    @property
    def different_pairs(self) -> int:
        """How many pairs show different people."""
        return self.pairs - self.same_pairs

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "accuracy": self.accuracy.mean,
            "accuracy_std": self.accuracy.std,
            "threshold": self.accuracy.threshold,
            "fold_accuracies": [outcome.accuracy for outcome in self.accuracy.outcomes],
            "fold_thresholds": [outcome.threshold for outcome in self.accuracy.outcomes],
            "tar_at_far": [
                {
                    "far_target": acceptance.target,
                    "tar": acceptance.tar,
                    "tar_std": acceptance.tar_std,
                    "far": acceptance.far,
                    "threshold": acceptance.threshold,
                    "is_supported": acceptance.is_supported,
                    "holds": acceptance.holds,
                    "remark": acceptance.remark,
                }
                for acceptance in self.acceptances
            ],
            "xnorm": self.xnorm,
            "pairs": self.pairs,
            "same_pairs": self.same_pairs,
            "different_pairs": self.different_pairs,
            "zero_embeddings": self.zero_embeddings,
        }


def verify(
    embeddings: ArrayLike,
    embeddings_flipped: ArrayLike,
    issame: Sequence[bool] | NDArray[np.bool_],
    *,
    folds: int = FOLDS,
    far_targets: Sequence[float] = FAR_TARGETS,
    names: Sequence[str] | None = None,
) -> VerificationResult:
    """Verify pairs by the embeddings of their pictures.

    :param embeddings: (2P, d) raw embeddings of the plain pictures; pair p is rows 2p and 2p + 1.
    :param embeddings_flipped: (2P, d) of the same pictures mirrored left to right.
    :param issame: (P,) whether a pair shows the same person.
    :param folds: consecutive blocks of pairs, each judged by the others.
    :param far_targets: rates of false accepts to tell true accepts at.
    :param names: (2P,) of the pictures, for errors.
    :raises ArgumentValueError: the shapes do not fit each other.
    :raises NonFiniteError: an embedding is not finite. Fields: ``kind`` (``embedding``), ``names``, ``iteration``.
    :raises BadInputError: fewer pairs than folds, or a fold without same or without different pairs.
    """
    same = np.asarray(issame, bool)
    return judge(measure(embeddings, embeddings_flipped, len(same)), same, folds, far_targets, names)


def measure(embeddings: ArrayLike, embeddings_flipped: ArrayLike, pairs: int) -> PairMeasurements:
    """The first half of :func:`verify`: all that is left of embeddings in the end. Done in float64.

    :param pairs: how many there should be.
    :raises ArgumentValueError: the shapes do not fit each other.
    """
    plain, mirrored = np.asarray(embeddings, np.float64), np.asarray(embeddings_flipped, np.float64)
    if plain.ndim != 2 or plain.shape != mirrored.shape or len(plain) != 2 * pairs:
        raise ArgumentValueError(
            f"Embeddings of shape {plain.shape} and mirrored ones of shape {mirrored.shape} do not fit {pairs:,} "
            "pairs.",
            advice="Give two rows for each pair, once plain and once mirrored.",
        )
    finite = finite_rows(plain) & finite_rows(mirrored)
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is told by name, not by NumPy
        final, is_zero = unit_rows(plain + mirrored)
        differences = final[0::2] - final[1::2]
        return PairMeasurements(
            np.einsum("pd,pd->p", differences, differences),
            np.stack([np.linalg.norm(plain, axis=1), np.linalg.norm(mirrored, axis=1)], axis=1),
            is_zero,
            finite,
        )


def judge(
    measurements: PairMeasurements,
    same: NDArray[np.bool_],
    folds: int = FOLDS,
    far_targets: Sequence[float] = FAR_TARGETS,
    names: Sequence[str] | Mapping[int, str] | None = None,
) -> VerificationResult:
    """The second half of :func:`verify`: from distances to rates."""
    cut = checked_folds(same, folds)
    check_finite(measurements.finite, names)
    distances = measurements.distances
    return VerificationResult(
        accuracy_by_folds(distances, same, cut),
        tuple(acceptance_by_folds(distances, same, cut, target) for target in far_targets),
        float(measurements.norms.mean()),
        len(same),
        int(same.sum()),
        int(measurements.zero.sum()),
        roc_curve(-distances, same, drop_collinear=False),
    )


def unit_rows(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Rows brought to length 1, and which of them are zero and stay so."""
    lengths = np.linalg.norm(rows, axis=1)
    is_zero = lengths == 0
    return rows / np.where(is_zero, 1.0, lengths)[:, None], is_zero


def finite_rows(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(N,) whether all numbers of a row are finite."""
    return np.asarray(np.isfinite(rows).all(axis=1), np.bool_)


def check_finite(finite: NDArray[np.bool_], names: Sequence[str] | Mapping[int, str] | None = None) -> None:
    """Refuse embeddings that are not finite, naming some of their pictures.

    :raises NonFiniteError: see :func:`verify`.
    """
    wrong = np.flatnonzero(~finite).tolist()
    if not wrong:
        return
    called = list(dict.fromkeys(str(index) if names is None else names[index] for index in wrong))
    shown = ", ".join(called[:_NAMED_AT_MOST]) + (" and others" if len(called) > _NAMED_AT_MOST else "")
    raise NonFiniteError(
        f"{len(wrong):,} of {len(finite):,} embeddings are not finite: {shown}.",
        advice="If it is all of them, a weight of the network is not finite: go back to an earlier generation "
        "(`ostinato runs show` lists them). If it is a few, look at these pictures.",
        kind="embedding",
        names=called,
        iteration=None,
    )
