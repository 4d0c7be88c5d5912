"""Searching for a learning rate: a sweep over all rates while the loss is watched.

The method of Smith (2017, arXiv:1506.01186, section 3.3) in the form that fastai made common: the rate rises in equal
ratios from one batch to the next, the loss is smoothed, and the rate with the lowest smoothed loss, divided by a safety
factor, is the one to train with.

With start s, end e and n batches, batch i (the first is 1) is trained with s * g^(i-1), g = (e/s)^(1/n). Its loss x is
smoothed with bias correction: a <- 0.98 a + 0.02 x from a = 0, y_i = a / (1 - 0.98^i). The point (s * g^i, y_i) is
remembered: the rate that the *next* batch is trained with, g being a few per cent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ostinato.errors import ArgumentValueError, StateError

STRENGTHS = {"default": 10.0, "aggressive": 5.0, "extreme": 2.5}
"""What the rate with the lowest smoothed loss is divided by."""

LOWEST = 1e-9
"""A result below this is none: the loss has only risen."""

Ended = Literal["swept", "diverged", "not finite"]


@dataclass(frozen=True)
class RatePoint:
    """One batch of a search.

    :param batch: its number, from 1.
    :param used: the learning rate in force while it was trained.
    :param rate: the rate it stands for in the curve: the next one of the sweep.
    :param loss: its loss.
    :param smoothed: the smoothed loss up to here.
    """

    batch: int
    used: float
    rate: float
    loss: float
    smoothed: float


class RateFinder:
    """Says which rate to train the next batch with, and takes its loss::

        finder = RateFinder(1000)
        while not finder.is_over:
            loss = train_one_batch(finder.rate)
            finder.add(loss)
        rate = finder.result("default")

    The sweep ends early when a loss is not a number, or when the smoothed loss is four times its lowest value. Pure
    arithmetic; nothing here knows a model.

    :param batches: how many batches the whole sweep has, 1 or more.
    :param start: the rate of the first batch, above 0.
    :param end: the rate that the sweep rises to, above ``start``.
    :raises ArgumentValueError: a value is out of range.
    """

    SMOOTHING = 0.98
    STOP_FACTOR = 4.0

    def __init__(self, batches: int = 1000, *, start: float = 1e-10, end: float = 0.1) -> None:
        if batches < 1 or not 0 < start < end < math.inf:
            raise ArgumentValueError(
                f"A search over {batches} batches from {start} to {end} makes no sense.",
                advice="Give 1 batch or more, and rates above 0 of which the first is the lower one.",
                batches=batches,
                start=start,
                end=end,
            )
        self.batches = batches
        self.start = start
        self.end = end
        self.points: list[RatePoint] = []
        """All batches whose loss counts, in order."""
        self.best: RatePoint | None = None
        """The first one with the lowest smoothed loss so far."""
        self.ended: Ended | None = None
        """How the sweep has ended; None while it goes on."""
        self._average = 0.0

    @property
    def is_over(self) -> bool:
        """Whether no further batch is wanted."""
        return self.ended is not None

    @property
    def rate(self) -> float:
        """The learning rate to train the next batch with."""
        return self._rate_after(len(self.points))

    def _rate_after(self, batches: int) -> float:
        return self.start * (self.end / self.start) ** (batches / self.batches)

    def add(self, loss: float) -> None:
        """Take the loss of the batch that was trained with :attr:`rate`.

        :param loss: any float; one that is no number ends the sweep and is not remembered.
        :raises StateError: the sweep has ended.
        """
        if self.ended is not None:
            raise StateError(f"The search has ended ({self.ended}); there is no batch to add.")
        number = len(self.points) + 1
        # Later on an infinite loss is the plainest divergence there is.
        if math.isnan(loss) or loss == -math.inf or (number == 1 and loss == math.inf):
            self.ended = "not finite"
            return
        self._average = self.SMOOTHING * self._average + (1 - self.SMOOTHING) * loss
        smoothed = self._average / (1 - self.SMOOTHING**number)
        point = RatePoint(number, self.rate, self._rate_after(number), loss, smoothed)
        self.points.append(point)
        if self.best is not None and smoothed > self.STOP_FACTOR * self.best.smoothed:
            self.ended = "diverged"
            return
        if self.best is None or smoothed < self.best.smoothed:
            self.best = point
        if number == self.batches:
            self.ended = "swept"

    def result(self, strength: str = "default") -> float | None:
        """The rate to train with, or None when none was found.

        None is found when not a single loss was finite, or when the loss was lowest at the very beginning, so that the
        result would be below 1e-9.

        :param strength: one of :data:`STRENGTHS`.
        :raises ArgumentValueError: there is no such strength.
        """
        if strength not in STRENGTHS:
            raise ArgumentValueError(
                f"There is no strength called {strength!r}.", advice=f"Choose one of: {', '.join(STRENGTHS)}."
            )
        if self.best is None:
            return None
        found = self.best.rate / STRENGTHS[strength]
        return found if found >= LOWEST else None


def rate_table(points: Sequence[RatePoint]) -> str:
    """The points of a search as CSV with a heading, numbers in full precision."""
    lines = ["batch,rate_used,rate,loss,smoothed_loss"]
    lines += [f"{p.batch},{p.used!r},{p.rate!r},{p.loss!r},{p.smoothed!r}" for p in points]
    return "\n".join(lines) + "\n"
