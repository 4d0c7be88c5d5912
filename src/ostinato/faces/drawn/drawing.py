"""Drawn pictures: a face cut and aligned like an extracted one, or a whole frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ostinato.errors import ArgumentValueError
from ostinato.faces.alignment import AlignedFace
from ostinato.faces.drawn.face_model import PosedHead, pose_head
from ostinato.faces.drawn.head_view import HeadView
from ostinato.faces.drawn.identity import DrawnIdentity
from ostinato.faces.drawn.painter import paint_background, paint_person
from ostinato.faces.drawn.state import FaceState
from ostinato.faces.metadata import Centering

_LEAST_SIZE = 16


@dataclass(frozen=True, eq=False)
class DrawnFace:
    """One aligned, drawn face of side ``size``."""

    image: NDArray[np.uint8]
    """(size, size, 3), RGB."""
    landmarks: NDArray[np.float32]
    """(68, 2), x and y in pixels of ``image``."""
    mask: NDArray[np.uint8]
    """(size, size), 255 on the visible face: skin and beard that hair leaves free."""
    frame_landmarks: NDArray[np.float32]
    """(68, 2), x and y in pixels of the frame."""
    matrix: NDArray[np.float64]
    """(2, 3), frame pixels to pixels of ``image``."""
    aligned: AlignedFace
    """The face's place in the frame."""


def frame_landmarks(identity: DrawnIdentity, state: FaceState) -> NDArray[np.float32]:
    """(68, 2) landmarks in frame pixels: exact, since the picture is drawn from them."""
    return _in_frame(pose_head(identity, state), state)


def _in_frame(head: PosedHead, state: FaceState) -> NDArray[np.float32]:
    return (head.view[:, :2] * state.scale + np.asarray(state.centre)).astype(np.float32)


def draw_face(
    identity: DrawnIdentity,
    state: FaceState,
    size: int = 256,
    *,
    centering: Centering = "head",
    coverage: float = 1.0,
    vertical_offset: float = 0.0,
) -> DrawnFace:
    """Draw ``identity`` in ``state``, cut and aligned as an extracted face is.

    The face is drawn straight into the crop, not cut from a drawn frame, so it is sharp at every size.

    :param size: pixels a side, at least 16.
    :param centering: ``head``, ``face`` or ``legacy``.
    :param coverage: fraction of the crop, above 0 and at most 1.
    :param vertical_offset: in face units.
    """
    if size < _LEAST_SIZE:
        raise ArgumentValueError(f"size is {size}; a drawn face needs at least {_LEAST_SIZE} pixels a side.")
    head = pose_head(identity, state)
    points = _in_frame(head, state)
    aligned = AlignedFace.of(points)
    matrix = aligned.crop_matrix(size, centering, coverage, vertical_offset)
    image = np.empty((size, size, 3), np.uint8)
    paint_background(image, state, matrix)
    mask = paint_person(image, HeadView(identity, state, matrix, head))
    landmarks = (points @ matrix[:, :2].T + matrix[:, 2]).astype(np.float32)
    return DrawnFace(image, landmarks, mask, points, matrix, aligned)


def true_swap(
    identity: DrawnIdentity,
    state: FaceState,
    size: int = 256,
    *,
    centering: Centering = "face",
    coverage: float = 1.0,
    vertical_offset: float = 0.0,
) -> NDArray[np.uint8]:
    """What a perfect swap of anybody's picture in ``state`` to ``identity`` looks like: (size, size, 3) RGB.

    It is ``identity`` in the other's pose, expression and light, before the other's background, aligned by
    ``identity``'s own landmarks as its training pictures are.
    """
    return draw_face(
        identity, state, size, centering=centering, coverage=coverage, vertical_offset=vertical_offset
    ).image


def draw_frame(people: Sequence[tuple[DrawnIdentity, FaceState]]) -> NDArray[np.uint8]:
    """A whole frame with one or more people, the later ones in front; (height, width, 3) RGB.

    Size and background are the first state's.
    """
    if not people:
        raise ArgumentValueError("A frame needs at least one person.")
    first = people[0][1]
    frame = np.empty((*first.frame_size, 3), np.uint8)
    same = np.array([[1.0, 0, 0], [0, 1.0, 0]])
    paint_background(frame, first, same)
    for identity, state in people:
        paint_person(frame, HeadView(identity, state, same, pose_head(identity, state)))
    return frame
