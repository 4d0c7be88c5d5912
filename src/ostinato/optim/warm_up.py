"""Linear warm-up of the learning rate."""

from __future__ import annotations


def warm_up_factor(iteration: int, steps: int) -> float:
    """The share of the learning rate that the next update uses.

    Update k (the first is 1) runs with k/steps of the rate, and from update ``steps`` on with all of it. A function of
    the counter has nothing to save: a continued run is where it would have been.

    :param iteration: completed updates, 0 or more; the next one is ``iteration + 1``.
    :param steps: updates that the warm-up lasts; 0 switches it off.
    :returns: a factor above 0 and at most 1.
    """
    return min(1.0, (iteration + 1) / steps) if steps > 0 else 1.0
