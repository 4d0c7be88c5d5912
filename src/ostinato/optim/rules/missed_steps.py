"""What rows missed while nobody looked: products of 2x2 matrices over any stretch of past steps.

In SGD with momentum, a step without gradient multiplies the pair (weight, momentum) of every element by one 2x2 matrix.
A row that slept through steps s+1 … t is brought up to date by the product of their matrices, newest on the left.
Quotients of running products would not do: the determinant shrinks by the momentum at every step and underflows.

The steps are the leaves of a tree with 32 children to a node. For every node the product of its younger siblings is
kept, so that any product is put together from one factor per level, and a new step costs at most 32 small products per
level. Memory: 32 bytes per step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.errors import ArgumentValueError

FORMAT = 1
RADIX = 32
MISSED_STEPS = "missed_steps"
"""The name under which a weight's state holds them."""

Matrix = NDArray[np.float64]


class MissedSteps:
    """The matrices of the steps so far, ready for products over their ends."""

    def __init__(self) -> None:
        self._levels: list[_Level] = []
        # Rows that never took part have seen 0 steps. A step that does nothing lets them stand on a leaf of their own.
        self._append(np.eye(2), 0)

    def __len__(self) -> int:
        """How many steps there were."""
        return self._levels[0].nodes - 1

    def append(self, matrix: Matrix) -> None:
        """Add the newest step.

        :param matrix: (2, 2), float64; multiplies columns (weight, momentum) from the left.
        """
        self._append(np.asarray(matrix, dtype=np.float64), 0)

    def _append(self, matrix: Matrix, number: int) -> None:
        if number == len(self._levels):
            self._levels.append(_Level())
        parent = self._levels[number].append(matrix)
        if parent is not None:
            self._append(parent, number + 1)

    def products_since(self, steps: NDArray[np.int64]) -> Matrix:
        """Give the product of all steps after the first ``steps[i]``, for each i.

        :param steps: (n,), each in 0..len(self).
        :returns: (n, 2, 2), float64.
        """
        node = np.asarray(steps, dtype=np.int64)
        product = self._levels[0].younger[node]
        # While a row's ancestor is complete, its younger siblings follow; where it still grows, only what has grown.
        climbing = np.arange(len(node))
        newest = np.eye(2)
        for number, level in enumerate(self._levels):
            node = node // RADIX
            newest_here = newest
            newest = newest @ level.growing
            above = self._levels[number + 1] if number + 1 < len(self._levels) else None
            complete = node[climbing] < (0 if above is None else above.nodes)
            done = climbing[~complete]
            product[done] = newest_here @ product[done]
            climbing = climbing[complete]
            if above is None or not len(climbing):
                break
            product[climbing] = above.younger[node[climbing]] @ product[climbing]
        return product

    def make_up(self, weight: Tensor, momentum: Tensor | None, row_step: Tensor) -> None:
        """Give rows what they have missed, in place.

        The products come from the host, which waits for ``row_step`` where that is on an accelerator.

        :param weight: (n, \\*row shape), rows of the table.
        :param momentum: of the same shape; None where the rule has none.
        :param row_step: (n,) integers: how many steps each row has seen.
        """
        steps, place = torch.unique(row_step, return_inverse=True)
        if len(steps) == 1 and int(steps) == len(self):
            return
        products = torch.from_numpy(self.products_since(steps.cpu().numpy()))
        shape = (-1,) + (1,) * (weight.ndim - 1)
        factors = products.to(weight.device, weight.dtype)[place]

        def factor(row: int, column: int) -> Tensor:
            return factors[:, row, column].reshape(shape)

        if momentum is None:
            weight.mul_(factor(0, 0))
            return
        caught_up = factor(1, 0) * weight + factor(1, 1) * momentum
        weight.mul_(factor(0, 0)).addcmul_(momentum, factor(0, 1))
        momentum.copy_(caught_up)

    def clear(self) -> None:
        """Forget all steps."""
        self._levels = []
        self._append(np.eye(2), 0)

    def state_dict(self) -> dict[str, Any]:
        """Give the steps as plain tensors."""
        return {
            "format": FORMAT,
            "younger": [torch.from_numpy(level.younger[: level.nodes].copy()) for level in self._levels],
            "growing": [torch.from_numpy(level.growing.copy()) for level in self._levels],
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> MissedSteps:
        """Make what :meth:`state_dict` described.

        :raises ArgumentValueError: the format is not known.
        """
        if state.get("format") != FORMAT:
            raise ArgumentValueError(
                f"Put-off row updates have format {state.get('format')!r}, and {FORMAT} is the one that is known.",
                advice="They may come from a newer version of Ostinato.",
            )
        made = cls()
        made._levels = [
            _Level(_array(younger), _array(growing))
            for younger, growing in zip(state["younger"], state["growing"], strict=True)
        ]
        return made


class _Level:
    """The nodes of one height: single steps, runs of 32, of 1024 and so on."""

    def __init__(self, younger: Matrix | None = None, growing: Matrix | None = None) -> None:
        self.nodes = 0 if younger is None else len(younger)
        self.younger = np.empty((RADIX, 2, 2)) if younger is None else younger.copy()
        """(capacity, 2, 2): for each node, the product of its younger siblings."""
        self.growing = np.eye(2) if growing is None else growing.copy()
        """The product of the nodes whose parent is not complete yet."""

    def append(self, matrix: Matrix) -> Matrix | None:
        """Add a node; give the parent's product when this completes it."""
        if self.nodes == len(self.younger):
            self.younger = np.concatenate([self.younger, np.empty_like(self.younger)])
        siblings = self.younger[self.nodes - self.nodes % RADIX : self.nodes]
        siblings[:] = matrix @ siblings
        self.younger[self.nodes] = np.eye(2)
        self.nodes += 1
        self.growing = matrix @ self.growing
        if self.nodes % RADIX:
            return None
        complete, self.growing = self.growing, np.eye(2)
        return complete


def _array(value: Any) -> Matrix:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value, dtype=np.float64)
