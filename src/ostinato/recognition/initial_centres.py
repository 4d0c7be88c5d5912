"""The first values of class centres: a function of (seed, class, place in the row) alone.

So it does not matter over how many ranks the classes are cut, nor whether a class was there from the start.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ostinato.data.counter_random import CounterRandom, to_normal

STANDARD_DEVIATION = 0.01
_NUMBERS_AT_ONCE = 2**18


def fill_initial_centres(rows: Tensor, first_row: int, seed: int) -> None:
    """Fill rows with normal numbers of mean 0 and standard deviation 0.01.

    Takes about 25 processor seconds for a million rows of 512. Needs memory for a few hundred rows beside them.

    :param rows: (n, d), the rows ``first_row`` onwards of the whole table.
    """
    random = CounterRandom(seed, "class centres")
    total, width = rows.shape
    lanes = width + width % 2
    step = max(1, _NUMBERS_AT_ONCE // max(1, lanes))
    for start in range(0, total, step):
        numbers = np.arange(first_row + start, first_row + min(start + step, total))
        drawn = to_normal(random.uniform(numbers, lanes))[:, :width] * STANDARD_DEVIATION
        rows[start : start + len(numbers)] = torch.from_numpy(drawn).to(rows.dtype)
