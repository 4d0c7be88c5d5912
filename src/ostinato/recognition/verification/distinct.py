"""Drawing without repeats, and sharing out evenly."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ostinato.data.counter_random import CounterRandom

_SMALL = 4096


def distinct(random: CounterRandom, total: int, count: int, stream: int) -> NDArray[np.int64]:
    """``count`` different whole numbers below ``total``, in random order; all of them where ``count`` is ``total``.

    Work and memory: O(count), not O(total).

    :param count: at most ``total``.
    :param stream: another stream, other numbers.
    """
    if total <= max(_SMALL, 4 * count):
        return random.permutation(total, 0, stream)[:count]
    drawn = np.zeros(0, np.int64)
    start = 0
    while len(drawn) < count:
        # At most a quarter of the numbers is taken, so hardly more than one round is needed.
        wanted = 2 * (count - len(drawn)) + 16
        words = random.words(np.arange(start, start + wanted), 2, stream)
        start += wanted
        fresh = ((words[:, 0] << np.uint64(32)) | words[:, 1]) % np.uint64(total)
        together = np.concatenate([drawn, fresh.astype(np.int64)])
        _, first = np.unique(together, return_index=True)
        drawn = together[np.sort(first)]
    return drawn[:count]


def shared_evenly(capacities: ArrayLike, total: int, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """How much of ``total`` each place takes: all the same, but none more than its capacity.

    :param capacities: (n,) 0 or more; together at least ``total``.
    :param order: (n,) the places in the order in which they take the rest that cannot be shared.
    """
    capacity = np.asarray(capacities, np.int64)
    low, high = 0, int(capacity.max(initial=0))
    while low < high:  # the highest level at which not too much is taken
        middle = (low + high + 1) // 2
        if int(np.minimum(capacity, middle).sum()) <= total:
            low = middle
        else:
            high = middle - 1
    shares = np.minimum(capacity, low)
    rest = total - int(shares.sum())
    open_places = order[capacity[order] > shares[order]]
    shares[open_places[:rest]] += 1
    return shares
