"""Which faces of another side are shaped like a given one, for warp to landmarks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ostinato.errors import ArgumentValueError

_NEIGHBOURS = 10


class LandmarkNeighbours:
    """Finds and remembers the nearest faces of the other sides.

    A face's neighbours are looked for when it comes up first (one pass over the other side's landmarks, about 0.1 ms
    per thousand faces) and kept, so start-up stays short; the result does not depend on when or with whom it is asked
    for. Holds the landmarks, 544 bytes a face, and up to 40 bytes a face and other side.

    :param landmarks: per side (n, 68, 2) float32, pixels of the prepared face.
    """

    def __init__(self, landmarks: list[npt.NDArray[np.float32]]) -> None:
        if len(landmarks) < 2:
            raise ArgumentValueError(
                "Warp to landmarks bends faces of one side to shapes of another, and there is only one side.",
                advice="Train with two sides or more, or leave warp to landmarks off.",
            )
        self._landmarks = [np.ascontiguousarray(side, dtype=np.float32) for side in landmarks]
        self._flat = [side.reshape(len(side), -1) for side in self._landmarks]
        smallest = min(len(side) for side in landmarks)
        self.number = max(1, min(_NEIGHBOURS, smallest - 1))
        """How many neighbours each face has."""
        self._found: dict[tuple[int, int, int], npt.NDArray[np.int32]] = {}

    def nearest(self, side: int, face: int, other: int) -> npt.NDArray[np.int32]:
        """The faces of side ``other`` nearest to a face of side ``side``, nearest first, lower index first in a tie."""
        key = (side, face, other)
        if key not in self._found:
            difference = self._flat[other] - self._flat[side][face]
            distances = np.einsum("nk,nk->n", difference, difference)
            # Every face within the distance of the last place, so that a tie there is decided by index.
            last = np.partition(distances, self.number - 1)[self.number - 1]
            within = np.flatnonzero(distances <= last)
            order = np.argsort(distances[within], kind="stable")
            self._found[key] = within[order][: self.number].astype(np.int32)
        return self._found[key]

    def pairs(
        self, sides: npt.NDArray[np.int64], faces: npt.NDArray[np.int64], picks: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float32]:
        """Own and drawn neighbour's landmarks.

        :param sides: (n,) number of each sample's side.
        :param faces: (n,) index within the side.
        :param picks: (n, 2) uniform numbers below 1: for the other side, and for the neighbour.
        :return: (n, 2, 68, 2).
        """
        result = np.empty((len(sides), 2, 68, 2), dtype=np.float32)
        for row in range(len(sides)):
            side, face = int(sides[row]), int(faces[row])
            other = int(picks[row, 0] * (len(self._landmarks) - 1))
            other += other >= side
            nearest = self.nearest(side, face, other)
            result[row, 0] = self._landmarks[side][face]
            result[row, 1] = self._landmarks[other][nearest[int(picks[row, 1] * len(nearest))]]
        return result
