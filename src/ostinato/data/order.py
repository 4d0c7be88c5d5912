"""In which order the samples of each side are used.

A side's order is an endless row of random permutations of its samples, one after the other. Sides have their own
permutations, so which samples meet in a pair is random and changes from pass to pass. What is at a given position
depends on the seed, the side and its number of samples, and on nothing else: not on the batch size, the number of
workers, or where a run was continued.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ostinato.data.counter_random import CounterRandom
from ostinato.errors import ArgumentValueError

_KEPT_PERMUTATIONS = 4  # a side; prefetching looks at most a little ahead of what is being delivered


class SideOrders:
    """The orders of all sides.

    One pass (epoch) is one walk over the larger side. A smaller side simply goes on with its next permutation in the
    middle of a pass, so each of its samples appears once before any appears again, and nothing is left out at the end
    of a pass.

    :param counts: the number of samples of each side, each at least 1.
    :param seed: the run's seed.
    """

    def __init__(self, counts: Sequence[int], seed: int) -> None:
        if not counts or min(counts) < 1:
            raise ArgumentValueError(
                f"The sides have {list(counts)} samples.", advice="Give at least one side, and samples to every side."
            )
        self.counts = tuple(counts)
        self._random = CounterRandom(seed, "order")
        self._permutations: list[dict[int, npt.NDArray[np.int64]]] = [{} for _ in counts]

    @property
    def pass_length(self) -> int:
        """Samples per side in one pass: the count of the larger side."""
        return max(self.counts)

    def indices(self, side: int, start: int, length: int) -> npt.NDArray[np.int64]:
        """Which samples stand at positions ``start`` to ``start + length - 1``.

        :param side: the number of the side, from 0.
        :param start: global position, counted from the beginning of the run.
        :param length: may be larger than the side, or than a pass.
        :return: (length,) indices below the side's count.
        """
        count = self.counts[side]
        pieces = []
        position = start
        while position < start + length:
            number, first = divmod(position, count)
            last = min(count, first + start + length - position)
            pieces.append(self._permutation(side, number)[first:last])
            position += last - first
        return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)

    def _permutation(self, side: int, number: int) -> npt.NDArray[np.int64]:
        kept = self._permutations[side]
        if number not in kept:
            while len(kept) >= _KEPT_PERMUTATIONS:
                del kept[next(iter(kept))]
            kept[number] = self._random.permutation(self.counts[side], number, side)
        return kept[number]
