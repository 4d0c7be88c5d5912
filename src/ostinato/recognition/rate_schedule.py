"""The learning rate of a recognition run, as a function of the number of the update alone.

::

    warm-up      base * j / W                                     for j up to W, whatever comes after it
    polynomial   base * ((T - j + 1) / (T - W)) ** power          so the last update still moves something
    multistep    base * factor ** (number of milestones below j)
    constant     base

j counts parameter updates from 1, W is the length of the warm-up and T that of the run, both in updates. Nothing is
remembered, so there is nothing to save, and a continued run is where it would have been.

InsightFace's scheduler is stepped *after* the optimizer, so its very first update uses the full rate and update j of
the warm-up base * (j - 1) / W; ``starts_full`` does the same. The rates after the warm-up are equal either way.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ostinato.config import RecognitionOptions
from ostinato.errors import ArgumentValueError

ScheduleKind = Literal["polynomial", "multistep", "constant"]


@dataclass(frozen=True)
class RateSchedule:
    """The rate of every update.

    :param base: the full rate.
    :param total: updates of the whole run, at least 1.
    :param kind: see the head of this module.
    :param warm_up: updates of the warm-up; a negative number counts as 0.
    :param power: of the polynomial.
    :param milestones: updates *after* which the rate of ``multistep`` falls, rising.
    :param factor: of each fall.
    :param starts_full: update j of the warm-up uses the rate of j - 1, and update 1 the full one.
    :raises ArgumentValueError: a value is out of range.
    """

    base: float
    total: int
    kind: ScheduleKind = "polynomial"
    warm_up: int = 0
    power: float = 1.0
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    starts_full: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.base < math.inf:
            raise ArgumentValueError(f"The learning rate is {self.base}, and must be above 0 and finite.")
        if self.total < 1:
            raise ArgumentValueError(f"The run has {self.total} updates, and a schedule needs at least 1.")
        if self.kind not in ("polynomial", "multistep", "constant"):
            raise ArgumentValueError(
                f"There is no schedule {self.kind!r}.", advice="Use polynomial, multistep, constant."
            )
        if not self.power > 0 or not 0 < self.factor <= 1:
            raise ArgumentValueError(
                f"The power is {self.power} and the factor {self.factor}.",
                advice="The power is above 0, the factor above 0 and at most 1.",
            )
        if any(milestone < 1 for milestone in self.milestones) or any(b <= a for a, b in pairwise(self.milestones)):
            raise ArgumentValueError(f"The milestones {list(self.milestones)} must rise from at least 1.")

    def __call__(self, update: int) -> float:
        """The rate of update number ``update``, counted from 1. After the last one it stays as it is.

        :raises ArgumentValueError: there is no such update.
        """
        if update < 1:
            raise ArgumentValueError(f"Updates are counted from 1, and {update} was asked for.")
        warm_up = max(0, self.warm_up)
        if update <= warm_up:
            if not self.starts_full:
                return self.base * update / warm_up
            return self.base if update == 1 else self.base * (update - 1) / warm_up
        if self.kind == "polynomial":
            if warm_up >= self.total:  # no way is left on which to fall
                return self.base
            left = max(0, self.total - update + 1) / (self.total - warm_up)
            return self.base * left**self.power
        if self.kind == "multistep":
            return self.base * self.factor ** bisect_left(self.milestones, update)
        return self.base


def scaled_rate(options: RecognitionOptions) -> float:
    """The full learning rate for the batch that the options ask for, accumulation included."""
    settings = options.optimizer
    if not settings.linear_scaling:
        return settings.learning_rate
    return settings.learning_rate * options.batch_size * settings.accumulation / settings.linear_scaling_batch


def updates_of(passes: float, images: int, images_per_update: int) -> int:
    """How many updates so many passes take: as many as are begun, at least 1 where there is any pass at all.

    :param passes: 0 or more; may be a fraction.
    :param images: images in a pass.
    :param images_per_update: over all ranks, with accumulation.
    """
    # The rounding keeps 0.1 passes of 30 images from being a hair more than 3 images.
    return math.ceil(round(passes * images / images_per_update, 9))


def schedule_from(options: RecognitionOptions, images: int) -> tuple[RateSchedule, int]:
    """The schedule that options describe, and the updates of the whole run.

    Counts come from the data, not from what somebody typed into a file.

    :param images: images in one pass.
    :raises ArgumentValueError: milestones fall together in one update.
    """
    settings = options.optimizer
    per_update = options.batch_size * settings.accumulation
    total = options.iterations or updates_of(options.epochs, images, per_update)
    schedule = RateSchedule(
        scaled_rate(options),
        total,
        settings.schedule,
        warm_up=updates_of(settings.warmup_epochs, images, per_update),
        power=settings.power,
        milestones=_milestones(settings.milestones, settings.milestone_unit, images, per_update)
        if settings.schedule == "multistep"
        else (),
        factor=settings.milestone_factor,
        starts_full=settings.warmup_starts_full,
    )
    return schedule, total


def _milestones(texts: Sequence[str], unit: str, images: int, per_update: int) -> tuple[int, ...]:
    if unit == "iteration":
        return tuple(int(float(text)) for text in texts)
    return tuple(updates_of(float(text), images, per_update) for text in texts)
