"""Folders of drawn faces, in the layout of extracted ones."""

from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from ostinato.errors import ArgumentValueError
from ostinato.faces.drawn.drawing import DrawnFace, draw_face, draw_frame
from ostinato.faces.drawn.identity import DrawnIdentity
from ostinato.faces.drawn.state import FaceState
from ostinato.faces.face_files import write_face
from ostinato.faces.metadata import FaceMetadata, FaceSource, StoredMask
from ostinato.faces.png_encoding import encode_png

MASK_NAME = "custom_face"
"""The stored mask of a drawn face: exactly the visible face."""

_MASK_SIZE = 128


def write_drawn_folder(
    folder: str | os.PathLike[str],
    identity: DrawnIdentity,
    count: int,
    seed: int = 0,
    size: int = 256,
    *,
    first: int = 0,
    frames: str | os.PathLike[str] | None = None,
) -> list[Path]:
    """Draw ``count`` faces of one identity and write them as extracted faces; returns the files in order.

    Picture ``i`` shows the state ``FaceState.from_seed(seed, first + i)``: two folders of different identities and the
    same seed show the same states, and so hold each other's true swaps. Every call writes the same files.

    :param folder: made when missing; files of the same names are replaced.
    :param first: index of the first state, to write a folder in parts.
    :param frames: where to write the source frames too, as PNG; None writes none.
    :raises OSError: the disk refuses.
    """
    if count < 0:
        raise ArgumentValueError(f"count is {count}; it is the number of faces to draw.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for index in range(first, first + count):
        state = FaceState.from_seed(seed, index)
        face = draw_face(identity, state, size)
        path = folder / f"drawn_{index:06d}_0.png"
        write_face(path, face.image, drawn_metadata(face, state, f"drawn_{index:06d}.png"))
        written.append(path)
        if frames is not None:
            Path(frames).mkdir(parents=True, exist_ok=True)
            frame = encode_png(draw_frame([(identity, state)]))
            (Path(frames) / f"drawn_{index:06d}.png").write_bytes(frame)
    return written


def drawn_metadata(face: DrawnFace, state: FaceState, source_filename: str, face_index: int = 0) -> FaceMetadata:
    """The metadata of a drawn face of a frame called ``source_filename``, with its exact mask stored."""
    low, high = np.floor(face.frame_landmarks.min(axis=0)), np.ceil(face.frame_landmarks.max(axis=0))
    to_mask = face.aligned.crop_matrix(_MASK_SIZE, "face")
    return FaceMetadata(
        x=int(low[0]),
        y=int(low[1]),
        w=int(high[0] - low[0]),
        h=int(high[1] - low[1]),
        landmarks=face.frame_landmarks,
        source=FaceSource(
            source_filename=source_filename,
            original_filename=f"{Path(source_filename).stem}_{face_index}.png",
            face_index=face_index,
            source_frame_dims=state.frame_size,
        ),
        masks={MASK_NAME: StoredMask.pack(_mask_at(face, to_mask), to_mask, "face")},
    )


def _mask_at(face: DrawnFace, to_mask: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The face's mask as seen through another matrix from the frame."""
    back = np.vstack([face.matrix, [0.0, 0.0, 1.0]])
    between = to_mask @ np.linalg.inv(back)
    return np.asarray(cv2.warpAffine(face.mask, between, (_MASK_SIZE, _MASK_SIZE), flags=cv2.INTER_LINEAR), np.uint8)
