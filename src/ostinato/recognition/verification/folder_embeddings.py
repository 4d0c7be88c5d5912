"""The embeddings of a folder of pictures, and the file that keeps them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ostinato.data.pictures import PICTURE_SUFFIXES
from ostinato.errors import BadInputError
from ostinato.recognition.data.image_folder import scan_identities
from ostinato.recognition.verification.embedding import BATCH_SIZE, embed_usable_images
from ostinato.recognition.verification.pictures import PictureFile
from ostinato.recognition.verification.result import check_finite, finite_rows, unit_rows
from ostinato.runs.atomic import Files

NOBODY = -1
"""The label of pictures that lie in no person's folder."""


@dataclass(frozen=True, eq=False)
class FolderEmbeddings:
    """Embeddings of the pictures of a folder.

    :param names: paths relative to the folder, with forward slashes.
    :param labels: (N,) places in ``people``, or :data:`NOBODY`.
    :param people: names of the people, sorted.
    :param embeddings: (N, d) float32: the embeddings of the plain and of the mirrored picture, added.
    :param normalised: whether they were brought to length 1.
    :param left_out: what could not be used, and why, one sentence each.
    :param notes: what is odd about the folder, one sentence each.
    """

    names: tuple[str, ...]
    labels: NDArray[np.int64]
    people: tuple[str, ...]
    embeddings: NDArray[np.float32]
    normalised: bool
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write an ``.npz`` file in one step. NumPy reads it without pickle. Memory: the file.

        :raises OSError: the disk refuses.
        """
        content = io.BytesIO()
        np.savez(
            content,
            names=np.asarray(self.names, np.str_),
            labels=self.labels,
            people=np.asarray(self.people, np.str_),
            embeddings=self.embeddings,
            normalised=np.asarray(self.normalised),
        )
        target = Path(path)
        Files().make_folder(target.parent)
        Files().replace(target, lambda: [content.getbuffer()])


def embed_folder(
    model: nn.Module,
    folder: str | os.PathLike[str],
    *,
    normalise: bool = True,
    batch_size: int = BATCH_SIZE,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> FolderEmbeddings:
    """Embed all pictures of a folder: those in sub-folders, one for each person, and those side by side in it.

    :param model: in evaluation mode, on ``device``; see :func:`~.embedding.embed_images`.
    :param normalise: bring embeddings to length 1; one of length 0 stays.
    :param progress: called with pictures done and all.
    :raises BadInputError: the folder cannot be read, holds no pictures, or none that can be used.
    :raises NonFiniteError: an embedding is not finite.
    """
    root = Path(folder)
    names, labels, people, notes = _pictures_of(root)
    files = [PictureFile(root / name) for name in names]
    embedded, used, reasons = embed_usable_images(model, files, batch_size=batch_size, device=device, progress=progress)
    if embedded is None:
        raise BadInputError(
            f"None of the {len(files):,} pictures can be used. The first: {reasons[0]}", path=os.fspath(folder)
        )
    rows = embedded.plain.astype(np.float64) + embedded.mirrored
    check_finite(finite_rows(rows), [names[place] for place in used])
    if normalise:
        rows, _ = unit_rows(rows)
    return FolderEmbeddings(
        tuple(names[place] for place in used),
        np.asarray([labels[place] for place in used], np.int64),
        people,
        rows.astype(np.float32),
        normalise,
        tuple(reasons),
        notes,
    )


def _pictures_of(root: Path) -> tuple[list[str], list[int], tuple[str, ...], tuple[str, ...]]:
    try:
        loose = sorted(
            entry.name
            for entry in root.iterdir()
            if entry.suffix.lower() in PICTURE_SUFFIXES and not entry.name.startswith(".") and entry.is_file()
        )
    except OSError as error:
        raise BadInputError(
            f"{root} cannot be read: {error.strerror or error}.", advice="Give a folder of pictures.", path=str(root)
        ) from error
    try:
        found = scan_identities(root)
    except BadInputError:
        if not loose:
            raise
        return loose, [NOBODY] * len(loose), (), ()
    names = [
        PurePosixPath(identity.name, *Path(file).parts).as_posix()
        for identity in found.identities
        for file in identity.files
    ]
    labels = [label for label, identity in enumerate(found.identities) for _ in identity.files]
    people = tuple(identity.name for identity in found.identities)
    return names + loose, labels + [NOBODY] * len(loose), people, tuple(found.notes() if not loose else ())
