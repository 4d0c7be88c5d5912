"""Pairs made of a folder of people, for those who have no pair file.

Half of the pairs show one person, half two people, in every fold. People are dealt out to the folds, so that no one who
helped to find a fold's threshold is met again in it; where there are too few people for that, the folds share them, and
the set says so. What is chosen follows from the seed, the people and the pictures alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.data.count_of import count_of
from ostinato.data.counter_random import CounterRandom
from ostinato.errors import ArgumentValueError, BadInputError
from ostinato.recognition.verification.distinct import distinct, shared_evenly
from ostinato.recognition.verification.folds import FOLDS

PAIRS = 6000
"""At most so many pairs are made unless another number is asked for: as many as the usual sets have."""

_Rows = list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class MadePairs:
    """Pairs of pictures, fold by fold.

    :param pairs: (P, 2) numbers of pictures; P can be divided by the number of folds.
    :param same: (P,) whether they show the same person; half of each fold.
    :param folds: how many.
    :param folds_are_disjoint: whether no person is in two folds.
    """

    pairs: NDArray[np.int64]
    same: NDArray[np.bool_]
    folds: int
    folds_are_disjoint: bool


def make_pairs(counts: Sequence[int], *, pairs: int = PAIRS, folds: int = FOLDS, seed: int = 1) -> MadePairs:
    """Choose pairs.

    :param counts: how many pictures each person has; picture numbers run through the people in this order.
    :param pairs: how many are wanted; fewer are made where there are not enough, and only so many that all folds have
        equally many.
    :param folds: how many, 1 or more.
    :param seed: another seed, other pairs.
    :raises ArgumentValueError: no folds, or fewer than two pairs for each.
    :raises BadInputError: the pictures do not give one pair of each kind for every fold.
    """
    if folds < 1 or pairs < 2 * folds:
        raise ArgumentValueError(
            f"{count_of(pairs, 'pair')} in {folds} folds make no sense.",
            advice="Every fold needs at least two pairs: one of the same person, and one of two people.",
        )
    maker = _Maker(np.asarray(counts, np.int64), CounterRandom(seed, "verification pairs"))
    wanted = pairs // (2 * folds)
    blocks = maker.deal_people(folds)
    if blocks is not None:
        half = min([wanted, *(maker.same_capacity(block) for block in blocks)])
        half = min([half, *(maker.different_capacity(block) for block in blocks)])
        halves = [(maker.same(block, half), maker.different(block, half)) for block in blocks]
    else:
        everybody = np.arange(len(counts))
        half = min(wanted, maker.same_capacity(everybody) // folds, maker.different_capacity(everybody) // folds)
        if half < 1:
            raise _too_few(maker, folds)
        same, different = maker.same(everybody, half * folds), maker.different(everybody, half * folds)
        halves = [(same[fold::folds], different[fold::folds]) for fold in range(folds)]
    rows = [[*same, *different] for same, different in halves]
    return MadePairs(
        np.asarray([pair for fold in rows for pair in fold], np.int64),
        np.tile(np.repeat([True, False], half), folds),
        folds,
        blocks is not None and folds > 1,
    )


def _too_few(maker: _Maker, folds: int) -> BadInputError:
    everybody = np.arange(len(maker.counts))
    return BadInputError(
        f"{count_of(int(maker.counts.sum()), 'picture')} of {len(everybody):,} people give "
        f"{count_of(maker.same_capacity(everybody), 'pair')} of the same person and "
        f"{count_of(maker.different_capacity(everybody), 'pair')} of different people, too few for {folds} folds.",
        advice="Every fold needs one of each: give more people with at least two pictures, or ask for fewer folds.",
        folds=folds,
    )


class _Maker:
    """Chooses pairs among people given by their numbers."""

    def __init__(self, counts: NDArray[np.int64], random: CounterRandom) -> None:
        self.counts = counts
        self._first = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self._random = random
        self._stream = 0

    def _next_stream(self) -> int:
        self._stream += 1
        return self._stream

    def _own_pairs(self, people: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.counts[people] * (self.counts[people] - 1) // 2

    def same_capacity(self, people: NDArray[np.int64]) -> int:
        """How many pairs of the same person there are."""
        return int(self._own_pairs(people).sum())

    def different_capacity(self, people: NDArray[np.int64]) -> int:
        """How many pairs of different people there are."""
        counts = self.counts[people]
        return int((counts.sum() ** 2 - (counts**2).sum()) // 2)

    def deal_people(self, folds: int) -> list[NDArray[np.int64]] | None:
        """People for each fold, with about equally many pairs of the same person; None where a fold would have fewer
        than two people, or none with two pictures."""
        order = self._random.permutation(len(self.counts), 0, self._next_stream())
        own = self._own_pairs(np.arange(len(self.counts)))
        # One person to each fold after the other, those with the most pictures first, and in each round the most to the
        # fold that has the least so far.
        order = order[np.argsort(-own[order], kind="stable")]
        blocks: list[list[int]] = [[] for _ in range(folds)]
        loads = [0] * folds
        for person in map(int, order):
            fold = min(range(folds), key=lambda number: (len(blocks[number]), loads[number]))
            blocks[fold].append(person)
            loads[fold] += int(own[person])
        if any(len(block) < 2 or not load for block, load in zip(blocks, loads, strict=True)):
            return None
        return [np.asarray(sorted(block)) for block in blocks]

    def same(self, people: NDArray[np.int64], count: int) -> _Rows:
        """Different pairs of the same person, spread evenly over the people, in random order."""
        order = self._random.permutation(len(people), 0, self._next_stream())
        shares = shared_evenly(self._own_pairs(people), count, order)
        rows: _Rows = []
        for person, share in zip(map(int, people), map(int, shares), strict=True):
            if share:
                total = int(self.counts[person] * (self.counts[person] - 1) // 2)
                numbers = distinct(self._random, total, share, self._next_stream())
                first = int(self._first[person])
                rows += [(first + low, first + high) for low, high in (_unordered(int(number)) for number in numbers)]
        return self._shuffled(rows)

    def different(self, people: NDArray[np.int64], count: int) -> _Rows:
        """Different pairs of two people, spread evenly over the pairs of people, in random order."""
        couples = len(people) * (len(people) - 1) // 2
        if count <= couples:
            chosen = distinct(self._random, couples, count, self._next_stream())
            shares = np.ones(count, np.int64)
        else:
            chosen = np.arange(couples)
            low, high = np.asarray([_unordered(number) for number in range(couples)]).T
            order = self._random.permutation(couples, 0, self._next_stream())
            shares = shared_evenly(self.counts[people[low]] * self.counts[people[high]], count, order)
        rows: _Rows = []
        stream = self._next_stream()
        for number, share in zip(map(int, chosen), map(int, shares), strict=True):
            if not share:
                continue
            one, other = (int(people[place]) for place in _unordered(number))
            width = int(self.counts[other])
            total = int(self.counts[one]) * width
            if share == 1:  # by far the most frequent case where there are many people
                words = self._random.words([number], 1, stream)
                cells = [int(words[0, 0]) % total]
            else:
                cells = [int(cell) for cell in distinct(self._random, total, share, self._next_stream())]
            first_of_one, first_of_other = int(self._first[one]), int(self._first[other])
            rows += [(first_of_one + cell // width, first_of_other + cell % width) for cell in cells]
        return self._shuffled(rows)

    def _shuffled(self, rows: _Rows) -> _Rows:
        return [rows[place] for place in self._random.permutation(len(rows), 0, self._next_stream())]


def _unordered(number: int) -> tuple[int, int]:
    """The pair (low, high), low < high, that comes ``number``-th: (0, 1), (0, 2), (1, 2), (0, 3), ..."""
    high = int((1 + (1 + 8 * number) ** 0.5) / 2)
    while high * (high - 1) // 2 > number:  # the square root of a large number may be off by one
        high -= 1
    while high * (high + 1) // 2 <= number:
        high += 1
    return number - high * (high - 1) // 2, high
