"""Pictures that need no files: for measuring speed without a disk, and for trying a training out."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from ostinato.data.counter_random import CounterRandom
from ostinato.errors import ArgumentValueError
from ostinato.recognition.data.source import BadImages

_COARSE = 6  # cells a side of the pattern that is enlarged to a picture
_CELLS = _COARSE * _COARSE * 3


class SyntheticSource:
    """Seeded patterns of any number of identities, the same on every machine.

    Picture number i shows identity ``i % classes``: a pattern of coarse coloured cells that belongs to the identity,
    mixed with one that belongs to the picture. So a batch has about as many identities as one of a real set, the loss
    is neither trivial nor hopeless, and nothing is degenerate.

    Memory: 8 bytes a picture for the labels.

    :param classes: identities.
    :param images: pictures; at least as many as identities.
    :param image_size: pixels a side.
    :param seed: another seed, other identities.
    :param variation: 0 to 1: how much of a picture is its own and not its identity's.
    """

    def __init__(
        self, classes: int, images: int, *, image_size: int = 112, seed: int = 0, variation: float = 0.4
    ) -> None:
        if not 1 <= classes <= images:
            raise ArgumentValueError(
                f"classes is {classes} and images is {images}.",
                advice="Use at least one identity, and at least one picture of each.",
            )
        if image_size < _COARSE or not 0 <= variation <= 1:
            raise ArgumentValueError(
                f"image_size is {image_size} and variation is {variation}.",
                advice=f"Use {_COARSE} pixels or more, and a variation from 0 to 1.",
            )
        self.classes = classes
        self.labels: npt.NDArray[np.int64] = np.arange(images, dtype=np.int64) % classes
        self.bad = BadImages()
        self.image_size = image_size
        self._variation = variation
        self._identities = CounterRandom(seed, "synthetic identity")
        self._pictures = CounterRandom(seed, "synthetic picture")

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int) -> tuple[npt.NDArray[np.uint8], int]:
        """Draw a picture, (image_size, image_size, 3) uint8, and give its label."""
        label = index % self.classes
        own = self._pictures.words([index], _CELLS)[0] >> np.uint64(24)
        identity = self._identities.words([label], _CELLS)[0] >> np.uint64(24)
        cells = identity * (1 - self._variation) + own * self._variation
        coarse = cells.astype(np.uint8).reshape(_COARSE, _COARSE, 3)
        size = (self.image_size, self.image_size)
        return np.asarray(cv2.resize(coarse, size, interpolation=cv2.INTER_LINEAR), np.uint8), label

    def place(self, index: int) -> str:
        """For messages."""
        return f"synthetic picture {index}"

    def close(self) -> None:
        """Nothing is open."""
