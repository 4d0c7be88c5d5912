"""The gradient that forward passes leave for the class centres: kept as factors, multiplied out block by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST_NORM = 1e-12
"""Rows and embeddings that are shorter are divided by this instead of their length."""


@dataclass(eq=False)
class CollectedGradient:
    """What one forward pass leaves for the centres: their gradient, as the product of two factors.

    With ``v`` the centres divided by their lengths, the loss' gradient with respect to ``v`` of class j is
    ``sum over i of factor * slopes[j, i] * samples[i]``, at the sub-centre that was nearest to sample i. The factors
    are smaller than the product as long as a step has fewer samples than an embedding has numbers.

    :ivar classes: (S,) int64, ascending, counted from the rank's first class; None: all classes.
    :ivar slopes: (S, N).
    :ivar nearest: (S, N) uint8, which sub-centre; None where each class has one.
    :ivar inverse_lengths: (S * sub_centres,).
    :ivar samples: (N, d).
    :ivar factor: (), what the backward passes have multiplied by so far; 0 before the first.
    """

    classes: Tensor | None
    slopes: Tensor
    nearest: Tensor | None
    inverse_lengths: Tensor
    samples: Tensor
    factor: Tensor

    def rows_in(self, start: int, end: int) -> slice:
        """Where the classes from ``start`` to ``end`` (not included) stand in this gradient. Waits for the device."""
        if self.classes is None:
            return slice(start, end)
        bounds = torch.searchsorted(self.classes, torch.tensor([start, end], device=self.classes.device)).tolist()
        return slice(bounds[0], bounds[1])

    def slopes_by_row(self, block: slice, sub_centres: int) -> Tensor:
        """The slopes of a block of classes, one line for each of their sub-centres: (classes * sub_centres, N)."""
        slopes = self.slopes[block]
        if self.nearest is None:
            return slopes
        spread = slopes.new_zeros((len(slopes), sub_centres, slopes.shape[1]))
        spread.scatter_(1, self.nearest[block].long().unsqueeze(1), slopes.unsqueeze(1))
        return spread.view(len(slopes) * sub_centres, slopes.shape[1])


class StepGradient:
    """The sum of what the passes of a step have left.

    :param parts: of any number of passes; all rows are as they were there.
    :param scale: divides the gradients.
    :param sub_centres: rows of each class.
    :param device: of the centres.
    """

    def __init__(
        self, parts: Sequence[CollectedGradient], scale: float, sub_centres: int, device: torch.device
    ) -> None:
        self.classes = _union([part.classes for part in parts], device)
        """(S,) int64: the classes that took part, ascending, each once; None: all."""
        self._parts = parts
        self._samples = [part.samples * (part.factor / scale) for part in parts]
        self._sub_centres = sub_centres

    def of_rows(self, weight: Tensor, start: int, end: int, out: Tensor) -> None:
        """The gradient of some of the rows that took part.

        :param weight: (classes * sub_centres, d), the rows.
        :param start: position in :attr:`classes` of their first class; ``end``: one past that of the last.
        :param out: like ``weight``; overwritten.
        """
        sub_centres = self._sub_centres
        if len(self._parts) == 1:
            (one,) = self._parts
            torch.mm(one.slopes_by_row(slice(start, end), sub_centres), self._samples[0], out=out)
            inverse = one.inverse_lengths[start * sub_centres : end * sub_centres]
        else:
            inverse = 1.0 / torch.linalg.vector_norm(weight, dim=1).clamp_min_(SMALLEST_NORM)
            self._add_parts(start, end, out.zero_().view(end - start, -1))
        # Through the division by the length: only what is at right angles to the centre counts, and a centre twice as
        # long turns half as far. One that is too short to be divided by its length is divided by a constant.
        along = torch.linalg.vecdot(out, weight).mul_(inverse * inverse)
        along.masked_fill_(inverse >= 1.0 / SMALLEST_NORM, 0.0)
        out.addcmul_(weight, along.unsqueeze(1), value=-1.0).mul_(inverse.unsqueeze(1))

    def _add_parts(self, start: int, end: int, by_class: Tensor) -> None:
        """Add up the products of several passes, whose classes differ: (classes, sub_centres * d)."""
        here = None if self.classes is None else self.classes[start:end]
        first, last = (start, end - 1) if here is None else here[[0, -1]].tolist()
        for part, samples in zip(self._parts, self._samples, strict=True):
            block = part.rows_in(first, last + 1)
            if block.stop == block.start:
                continue
            product = (part.slopes_by_row(block, self._sub_centres) @ samples).view(-1, by_class.shape[1])
            if part.classes is None:
                by_class.add_(product)
                continue
            mine = part.classes[block]
            place = mine - start if here is None else torch.searchsorted(here, mine)
            by_class.index_add_(0, place, product)


def _union(many: Sequence[Tensor | None], device: torch.device) -> Tensor | None:
    """Classes of several passes, ascending, each once; None: all."""
    if not many:
        return torch.empty(0, dtype=torch.int64, device=device)
    lists = [classes for classes in many if classes is not None]
    if len(lists) < len(many):
        return None
    return lists[0] if len(lists) == 1 else torch.unique(torch.cat(lists))
