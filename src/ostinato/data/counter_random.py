"""Random numbers that are a function of where they are used, not of what was drawn before.

:class:`CounterRandom` maps (seed, purpose, stream, position, lane) to a number by the Philox4x32-10 block function
(Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011). There is no state, so nothing
has to be stored for an exact continuation, and it does not matter which thread draws, in which order, or how samples
are cut into batches.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from ostinato.errors import ArgumentValueError

_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], dtype=np.uint64)
_WEYL = np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint64)
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox4x32(counters: npt.NDArray[np.uint64], key: tuple[int, int], rounds: int = _ROUNDS) -> npt.NDArray[np.uint64]:
    """The Philox4x32 block function, applied to every column.

    :param counters: (4, n) words, each below 2**32.
    :param key: the two words of the key, each below 2**32.
    :param rounds: 10 is the published standard.
    :return: (4, n) words, each below 2**32.
    """
    # The two multiplications of a round work on words 0 and 2; words 1 and 3 are only mixed in. Keeping the pairs as
    # two rows makes a round five array operations.
    multiplied, mixed = counters[0::2], counters[1::2]
    round_keys = (np.array(key, dtype=np.uint64) + np.arange(rounds, dtype=np.uint64)[:, None] * _WEYL) & _LOW
    for number in range(rounds):
        product = multiplied * _MULTIPLIERS
        multiplied = (product >> _SHIFT)[::-1] ^ mixed
        multiplied ^= round_keys[number, :, None]
        product &= _LOW
        mixed = product[::-1]
    return np.stack([multiplied[0], mixed[0], multiplied[1], mixed[1]])


class CounterRandom:
    """Draws for one purpose under one seed.

    :param seed: the run's seed; any integer.
    :param purpose: what the numbers are for, such as ``"order"``. Two purposes under one seed are independent.
    """

    def __init__(self, seed: int, purpose: str) -> None:
        digest = hashlib.blake2b(f"{seed}:{purpose}".encode(), digest_size=8).digest()
        self._key = (int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little"))

    def words(self, positions: npt.ArrayLike, lanes: int, streams: npt.ArrayLike = 0) -> npt.NDArray[np.uint64]:
        """Raw words.

        :param positions: (n,) integers >= 0, below 2**64: usually a sample's place in the order of its side.
        :param lanes: how many numbers each position gets. Asking for more lanes does not change the first ones.
        :param streams: one integer or (n,) integers, 0 to 2**32 - 1: usually the number of the side.
        :return: (n, lanes) words below 2**32.
        """
        place = np.atleast_1d(np.asarray(positions, dtype=np.uint64))
        if lanes < 0:
            raise ArgumentValueError(f"lanes is {lanes}.", advice="Ask for 0 or more numbers per position.")
        blocks = -(-lanes // 4)
        counters = np.empty((4, place.size, blocks), dtype=np.uint64)
        counters[0] = (place & _LOW)[:, None]
        counters[1] = (place >> _SHIFT)[:, None]
        counters[2] = np.arange(blocks, dtype=np.uint64)
        counters[3] = np.broadcast_to(np.asarray(streams, dtype=np.uint64), place.shape)[:, None]
        drawn = philox4x32(counters.reshape(4, -1), self._key)
        return drawn.reshape(4, place.size, blocks).transpose(1, 2, 0).reshape(place.size, 4 * blocks)[:, :lanes]

    def uniform(self, positions: npt.ArrayLike, lanes: int, streams: npt.ArrayLike = 0) -> npt.NDArray[np.float64]:
        """Uniform numbers strictly between 0 and 1, in steps of 2**-32; arguments and shape as :meth:`words`."""
        # The middle of each of the 2**32 steps: neither 0 nor 1 can come up.
        return (self.words(positions, lanes, streams).astype(np.float64) + 0.5) * 2.0**-32

    def permutation(self, count: int, index: int, stream: int = 0) -> npt.NDArray[np.int64]:
        """The ``index``-th random order of ``count`` things.

        :return: (count,) the numbers 0 to count - 1, each once. All orders are equally likely up to the chance,
            below count**2 / 2**65, that two sort keys are equal.
        """
        words = self.words([index], 2 * count, stream)[0]
        keys = (words[0::2] << _SHIFT) | words[1::2]
        return np.argsort(keys, kind="stable")


def to_normal(uniforms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Standard normal numbers from as many uniform ones, by Box and Muller's transform.

    :param uniforms: (n, k) numbers strictly between 0 and 1, k even. Columns 2i and 2i + 1 make the results 2i and
        2i + 1, so the first columns do not depend on how many there are.
    :return: (n, k); from uniform numbers in steps of 2**-32 no magnitude is above 6.8.
    """
    radius = np.sqrt(-2.0 * np.log(uniforms[:, 0::2]))
    angle = (2.0 * np.pi) * uniforms[:, 1::2]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2).reshape(uniforms.shape)
