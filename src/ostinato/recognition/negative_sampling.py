"""Which classes take part in a step: all that have a sample in it, and random others.

The work grows with the number of classes that are chosen, never with the number there are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ostinato.data.counter_random import CounterRandom
from ostinato.errors import ArgumentValueError

ClassNumbers = NDArray[np.int64]

_WORDS_PER_CLASS = 2
_SPARE = 1.1
"""So many more are drawn than are still needed: most rounds of drawing are then the last."""


def number_sampled(sampling_rate: float, classes: int) -> int:
    """How many of a rank's classes a sampling rate asks for, rounded down.

    :raises ArgumentValueError: the rate is not in 0..1.
    """
    if not 0.0 <= sampling_rate <= 1.0:
        raise ArgumentValueError(
            f"The sampling rate is {sampling_rate!r}.",
            advice="Give a number from 0 (only the classes of the step's own samples) to 1 (all classes).",
            sampling_rate=sampling_rate,
        )
    return int(sampling_rate * classes)


def positives_of(labels: ClassNumbers, first: int, last: int) -> ClassNumbers:
    """The classes of a range that have a sample here, counted from the start of the range; ascending, each once.

    :param labels: (N,) class numbers of the whole run.
    """
    return np.unique(labels[(labels >= first) & (labels < last)]) - first


class NegativeSampler:
    """Draws the classes of each step.

    The result is a function of (seed, rank, draw) and the positives alone: nothing needs to be saved, and two ranks
    draw different classes.

    :param classes: how many there are on this rank.
    """

    def __init__(self, classes: int, seed: int, rank: int) -> None:
        self.classes = classes
        self.rank = rank
        self._random = CounterRandom(seed, "negative classes")

    def sample(self, positives: ClassNumbers, count: int, draw: int) -> ClassNumbers:
        """Choose classes: all positives, and as many others, equally likely, as make up the count.

        :param positives: ascending, each once, in 0..classes-1.
        :param count: at most ``classes``; with more positives than that, there are no others.
        :param draw: number of the drawing, from 0.
        :return: ascending, each once; ``max(count, len(positives))`` of them.
        """
        needed = count - len(positives)
        if needed <= 0:
            return positives
        if 2 * len(positives) <= self.classes:
            return np.union1d(positives, self._choose(self.classes, needed, positives, draw))
        # Hardly any draw would hit a class that is free: choose among those.
        is_free = np.ones(self.classes, dtype=bool)
        is_free[positives] = False
        free = np.flatnonzero(is_free)
        return np.union1d(positives, free[self._choose(len(free), needed, positives[:0], draw)])

    def _choose(self, total: int, needed: int, taken: ClassNumbers, draw: int) -> ClassNumbers:
        """So many different numbers below ``total`` that are not among ``taken``."""
        others = total - len(taken)
        if needed * 2 <= others:
            return self._distinct(total, needed, taken, draw)
        # Of more than half it is quicker to choose those that are left out.
        stays = np.ones(total, dtype=bool)
        stays[taken] = False
        stays[self._distinct(total, others - needed, taken, draw)] = False
        return np.flatnonzero(stays)

    def _distinct(self, total: int, needed: int, taken: ClassNumbers, draw: int) -> ClassNumbers:
        """So many different numbers below ``total`` that are not among ``taken``, by drawing again where one has come
        up already: quick as long as at most half of all are taken, and half of the others needed."""
        words = np.empty((0,), dtype=np.uint64)
        found = np.empty((0,), dtype=np.int64)
        lanes = 0
        while len(found) < needed:
            lanes += max(64, int(_SPARE * (needed - len(found)))) * _WORDS_PER_CLASS
            words = self._random.words([draw], lanes, self.rank)[0]
            wide = (words[0::2] << np.uint64(32)) | words[1::2]
            # The remainder favours small numbers by less than classes / 2**64.
            candidates = (wide % np.uint64(total)).astype(np.int64)
            distinct, first_seen = np.unique(candidates, return_index=True)
            first_seen = first_seen[_is_not_in(distinct, taken)]
            # In the order of drawing: the smallest ones would not be a fair choice.
            found = candidates[np.sort(first_seen)[:needed]]
        return found


def positions_of(labels: ClassNumbers, first: int, chosen: ClassNumbers | None, classes: int) -> ClassNumbers:
    """Where each label's class stands among the chosen ones; -1 where it is not among them.

    :param labels: (N,) class numbers of the whole run.
    :param first: the class number at which this rank's range begins.
    :param chosen: ascending class numbers counted from there; None for all ``classes`` of the range.
    """
    local = labels - first
    mine = (local >= 0) & (local < classes)
    if chosen is None:
        return np.where(mine, local, -1)
    place = np.searchsorted(chosen, local)
    found = place < len(chosen)
    found[found] = chosen[place[found]] == local[found]
    return np.where(mine & found, place, -1)


def _is_not_in(values: ClassNumbers, sorted_others: ClassNumbers) -> NDArray[np.bool_]:
    if not len(sorted_others):
        return np.ones(len(values), dtype=bool)
    place = np.minimum(np.searchsorted(sorted_others, values), len(sorted_others) - 1)
    return sorted_others[place] != values
