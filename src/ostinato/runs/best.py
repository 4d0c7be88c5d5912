"""When a state counts as the best so far: a pure function of the average loss and the bar."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class BestBar:
    """The lowest average loss so far, and what kind of loss it is.

    :param lowest: None while there was none.
    :param definition: text that is equal exactly when losses may be compared: functions, weights, masks, multipliers.
    """

    lowest: float | None = None
    definition: str = ""


def judge(
    bar: BestBar, average: float | None, count: int, definition: str, *, minimum_count: int = 1, maximize: bool = False
) -> tuple[BestBar, bool]:
    """Whether an average is the best so far, and the bar afterwards.

    An average that is not finite never wins and never moves the bar. One over fewer than ``minimum_count`` iterations
    neither: a lucky batch would set a bar that is not beaten for thousands of iterations. Under another loss definition
    the bar starts anew. The first average that counts is the best one so far.

    :param average: mean loss since the last save; None when nothing was observed.
    :param count: number of iterations in it.
    :param maximize: the larger the better.
    """
    if bar.definition != definition:
        bar = BestBar(None, definition)
    if average is None or not math.isfinite(average) or count < minimum_count:
        return bar, False
    better = bar.lowest is None or (average > bar.lowest if maximize else average < bar.lowest)
    return (BestBar(average, definition), True) if better else (bar, False)
