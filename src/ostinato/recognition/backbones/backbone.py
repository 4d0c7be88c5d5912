"""What all backbones have in common: what goes in, what comes out, and in which precision it is computed."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from ostinato.errors import ArgumentValueError

IMAGE_SIZE = 112
"""Width and height of the pictures that every backbone takes, in pixels."""


class Backbone(nn.Module):
    """A network from faces to embeddings.

    ``forward`` takes ``[B, 3, 112, 112]``, RGB, -1 to 1, floating point (:attr:`image_size`), in contiguous or in
    channels-last memory, and returns ``[B, embedding_size]``, not normalised, float32 (float64 from a network and
    pictures of float64).

    With a half precision the layers that the published networks compute in half run under autocast to that dtype, and
    the others in float32; weights stay float32. Without one nothing is cast; inside a caller's autocast the same parts
    follow it or stay float32. Which parts those are is said by each family.

    :param name: the name that :func:`~ostinato.recognition.backbones.build_backbone` was asked for.
    :param embedding_size: numbers in an embedding.
    :param half_precision: ``torch.float16``, ``torch.bfloat16``, or None.
    """

    image_size = IMAGE_SIZE

    def __init__(self, name: str, embedding_size: int, half_precision: torch.dtype | None) -> None:
        super().__init__()
        self.name = name
        self.embedding_size = embedding_size
        self.half_precision = half_precision

    @abstractmethod
    def embed(self, pictures: Tensor) -> Tensor:
        """Compute the embeddings of pictures whose shape was checked."""

    @abstractmethod
    def initialize(self, generator: torch.Generator | None) -> None:
        """Give every parameter and buffer its first value.

        :param generator: what is drawn from; None for the global one of the device.
        """

    def forward(self, pictures: Tensor) -> Tensor:
        """Compute embeddings.

        :param pictures: ``[B, 3, 112, 112]``, RGB, -1 to 1, floating point.
        :returns: ``[B, embedding_size]``, not normalised.
        :raises ArgumentValueError: the pictures have another shape or hold whole numbers.
        """
        if pictures.dim() != 4 or tuple(pictures.shape[1:]) != (3, IMAGE_SIZE, IMAGE_SIZE):
            raise ArgumentValueError(
                f"{self.name} takes pictures of the shape [batch, 3, {IMAGE_SIZE}, {IMAGE_SIZE}], and these have the "
                f"shape {list(pictures.shape)}.",
                advice="Resize them, put channels second, and give one picture a batch axis of 1.",
                shape=tuple(pictures.shape),
            )
        if not pictures.is_floating_point():
            raise ArgumentValueError(
                f"{self.name} takes pictures in floating point from -1 to 1, and these are "
                f"{str(pictures.dtype).removeprefix('torch.')}.",
                advice="Compute (pixels - 127.5) / 127.5 from bytes.",
                dtype=pictures.dtype,
            )
        return self.embed(pictures)

    def extra_repr(self) -> str:
        """Say what the parts do not show."""
        half = "" if self.half_precision is None else f", {str(self.half_precision).removeprefix('torch.')}"
        return f"{self.name}, embedding_size={self.embedding_size}{half}"
