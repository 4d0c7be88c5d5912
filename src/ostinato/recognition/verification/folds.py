"""Pairs cut into folds: each is judged by what was learned on the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.data.count_of import count_of
from ostinato.errors import ArgumentValueError, BadInputError

FOLDS = 10
"""As face verification is reported everywhere."""


@dataclass(frozen=True)
class Fold:
    """Consecutive pairs, numbered from 0."""

    number: int
    first: int
    count: int

    @property
    def pairs(self) -> slice:
        """Where they are among all pairs."""
        return slice(self.first, self.first + self.count)


def cut_folds(pairs: int, folds: int = FOLDS) -> tuple[Fold, ...]:
    """Cut pairs into consecutive blocks, the first ``pairs % folds`` of them longer by one.

    :param pairs: how many there are.
    :param folds: how many blocks, at least 1.
    :raises ArgumentValueError: no folds.
    :raises BadInputError: fewer pairs than folds. Fields: ``pairs``, ``folds``.
    """
    if folds < 1:
        raise ArgumentValueError(f"{folds} folds make no sense.", advice="Ask for 1 or more.", folds=folds)
    if pairs < folds:
        raise BadInputError(
            f"{count_of(pairs, 'pair')} cannot be cut into {folds} folds.",
            advice=f"Give at least {folds} pairs, and rather thousands; or ask for fewer folds.",
            pairs=pairs,
            folds=folds,
        )
    size, longer = divmod(pairs, folds)
    cut, first = [], 0
    for number in range(folds):
        count = size + (number < longer)
        cut.append(Fold(number, first, count))
        first += count
    return tuple(cut)


def checked_folds(same: NDArray[np.bool_] | Sequence[bool], folds: int = FOLDS) -> tuple[Fold, ...]:
    """The folds of pairs that can be verified: in each there is a pair of one person and one of two people.

    :param same: (P,), whether a pair shows the same person.
    :raises BadInputError: fewer pairs than folds; or a fold without same pairs, or without different ones, in which an
        acceptance rate would be a division by zero. Fields: ``fold`` (from 1), ``missing`` (``same`` or ``different``).
    """
    truth = np.asarray(same, bool)
    cut = cut_folds(len(truth), folds)
    require_both_kinds(truth, cut)
    return cut


def require_both_kinds(same: NDArray[np.bool_], folds: Sequence[Fold]) -> None:
    """Refuse a fold without same or without different pairs; see :func:`checked_folds`."""
    for fold in folds:
        found = int(same[fold.pairs].sum())
        missing = "same" if found == 0 else "different" if found == fold.count else None
        if missing:
            raise BadInputError(
                f"Fold {fold.number + 1} of {len(folds)} (pairs {fold.first + 1:,} to {fold.first + fold.count:,}) has "
                f"no pair of {'the same person' if missing == 'same' else 'different people'}, so its acceptance rates "
                "cannot be told.",
                advice="Order the pairs so that every fold holds both kinds, or ask for fewer folds.",
                fold=fold.number + 1,
                missing=missing,
            )
