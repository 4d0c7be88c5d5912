"""What all loss functions have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from torch import Tensor, nn

from ostinato.errors import ArgumentValueError


class ImageLoss(nn.Module):
    """Compares drawn pictures with real ones.

    Called with the real pictures T and the drawn ones P, each (N, C, H, W), float32 or float64, nominally 0..1, RGB.
    Gradients flow to P alone. Every loss is 0 where P equals T (``flip``: below 1e-6) and has finite gradients there
    and at black and white; none changes its arguments in place.

    The "memory of a step" in the docstrings is what one call keeps until its gradient has been computed, and the
    highest point on the way to the gradient, both beyond T and P themselves, in maps of the size of P. Measured with
    ``benchmarks/losses.py`` on a CPU, 64 to 256 pixels, batch 16.

    :ivar name: as it is written in options.
    :ivar spatial: True: the result is a map, (N, C or 1, H, W), that a mask can weigh. False: it is one number for each
        picture, (N,), since its parts belong to no place in the picture.
    :ivar smallest: the smallest side, in pixels, that can be compared.
    :ivar for_smaller: what to choose for smaller ones; for the message.
    :param lengths: all heights and widths that pictures will have, pixels. Constants are made for them.
    :raises ArgumentValueError: one of the lengths is too small.
    """

    name: ClassVar[str]
    spatial: ClassVar[bool] = True
    smallest: ClassVar[int] = 1
    for_smaller: ClassVar[str] = "another loss function"

    def __init__(self, lengths: Iterable[int]) -> None:
        super().__init__()
        self.lengths = tuple(sorted(set(lengths)))
        if self.lengths and self.lengths[0] < self.smallest:
            raise ArgumentValueError(
                f"{self.name} needs pictures of at least {self.smallest} x {self.smallest} pixels, and these have "
                f"{self.lengths[0]}.",
                advice=f"Choose {self.for_smaller} for this size.",
                size=self.lengths[0],
            )


class AxisMatrices(nn.Module):
    """A linear filter along one axis as a matrix (length, length), made once for each length.

    Row i holds the weights with which the pixels of the axis enter the result at i, so what the filter does at the
    border is in the matrix. Filtering the rows and columns of a picture X is ``A @ X @ B.T``. Matrix products of this
    size are quicker than convolutions of one channel, forwards and even more so backwards.

    The matrices are no state: they follow from the length. They are buffers, so that they move with the module.

    :param make: gives the matrix, or a stack of them, for a length.
    :param lengths: the lengths that will be asked for.
    """

    def __init__(self, make: Callable[[int], Tensor], lengths: Iterable[int]) -> None:
        super().__init__()
        for length in set(lengths):
            self.register_buffer(f"length_{length}", make(length), persistent=False)

    def forward(self, length: int) -> Tensor:
        """The matrix for a length.

        :raises ArgumentValueError: the loss was not made for this length.
        """
        matrix = getattr(self, f"length_{length}", None)
        if matrix is None:
            known = sorted(int(name.removeprefix("length_")) for name, _ in self.named_buffers())
            raise ArgumentValueError(
                f"The loss was made for pictures of {', '.join(map(str, known))} pixels, and was given {length}.",
                advice="Name all heights and widths when the loss is made.",
            )
        return matrix
