"""In which order the pictures of a set are used, as a function of the seed and the position in the run.

Both orders are endless: passes follow each other without a seam, so a batch may hold the end of one pass and the
beginning of the next, no picture is left out, and the batch size may change at any position.
"""

from __future__ import annotations

import threading
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ostinato.data.counter_random import CounterRandom
from ostinato.errors import ArgumentValueError

_KEPT_PERMUTATIONS = 2  # batches are prepared ahead, so the next pass may begin before this one has ended
_PIECE = 1 << 19  # pictures whose sort keys are made at a time
_SHIFT = np.uint64(32)


class ImageOrder(Protocol):
    """Which pictures stand at which positions. Safe to use from several threads."""

    def indices(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The picture at each position.

        :param positions: (n,) positions of the run, 0 or more, ascending.
        :return: (n,) numbers of pictures.
        """
        ...


class ShuffledOrder:
    """Every picture once per pass, in a new random order in every pass.

    Memory: 4 bytes a picture for each of up to two passes (160 MB each for 40 million pictures; 8 bytes above 2**31),
    and 28 bytes a picture (1.1 GB) while the order of a pass is made, which takes about a quarter of a microsecond a
    picture (10 s).

    :param count: the number of pictures.
    :param seed: the run's seed.
    """

    def __init__(self, count: int, seed: int) -> None:
        if count < 1:
            raise ArgumentValueError(f"The set has {count} pictures.", advice="Give a set with pictures.")
        self._count = count
        self._permutations = _Permutations(count, CounterRandom(seed, "recognition order"))

    def indices(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """See :meth:`ImageOrder.indices`."""
        return self._permutations.at(positions)


class BalancedOrder:
    """Every identity equally often, however many pictures it has.

    Identities come in random orders, one after the other, each identity once in each; of its pictures an identity shows
    each once before any again. What counts as a pass is left to the caller.

    Memory: 16 bytes a picture and 16 an identity. Time: about 50 microseconds for each picture of a batch.

    :param labels: (n,) class of every picture. Classes without pictures do not come up.
    :param seed: the run's seed.
    """

    def __init__(self, labels: npt.NDArray[np.int64], seed: int) -> None:
        if not len(labels):
            raise ArgumentValueError("The set has no pictures.", advice="Give a set with pictures.")
        self._by_identity = np.argsort(labels, kind="stable")
        _, self._starts, self._counts = np.unique(labels[self._by_identity], return_index=True, return_counts=True)
        self._random = CounterRandom(seed, "recognition pictures of an identity")
        self._permutations = _Permutations(len(self._starts), CounterRandom(seed, "recognition identities"))

    def indices(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """See :meth:`ImageOrder.indices`."""
        identities = self._permutations.at(positions)
        uses = positions // len(self._starts)  # each identity comes up once in every order of the identities
        chosen = np.empty(len(positions), dtype=np.int64)
        for row, identity in enumerate(identities):
            walk, place = divmod(int(uses[row]), int(self._counts[identity]))
            inside = self._random.permutation(int(self._counts[identity]), walk, int(identity))[place]
            chosen[row] = self._by_identity[self._starts[identity] + inside]
        return chosen


class _Permutations:
    """An endless row of random permutations of ``count`` things."""

    def __init__(self, count: int, random: CounterRandom) -> None:
        self._count = count
        self._random = random
        self._lock = threading.Lock()
        self._kept: dict[int, npt.NDArray[np.integer]] = {}

    def at(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        numbers, places = np.divmod(positions, self._count)
        chosen = np.empty(len(positions), dtype=np.int64)
        for number in np.unique(numbers).tolist():
            rows = numbers == number
            chosen[rows] = self._permutation(number)[places[rows]]
        return chosen

    def _permutation(self, number: int) -> npt.NDArray[np.integer]:
        # Under the lock: two threads that need the next pass at the same time make it once.
        with self._lock:
            if number not in self._kept:
                while len(self._kept) >= _KEPT_PERMUTATIONS:
                    del self._kept[min(self._kept, key=lambda kept: (kept > number, kept))]
                self._kept[number] = self._make(number)
            return self._kept[number]

    def _make(self, number: int) -> npt.NDArray[np.integer]:
        keys = np.empty(self._count + 1, dtype=np.uint64)
        for first in range(0, self._count, _PIECE):
            last = min(first + _PIECE, self._count + 1)
            # One block of the generator gives the keys of two things.
            words = self._random.words(np.arange(first // 2, (last + 1) // 2), 4, number).reshape(-1, 2)
            keys[first:last] = (words[: last - first, 0] << _SHIFT) | words[: last - first, 1]
        order = np.argsort(keys[: self._count], kind="stable")
        return order.astype(np.int32) if self._count < 2**31 else order
