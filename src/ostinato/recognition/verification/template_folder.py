"""Folders laid out as IJB-B and IJB-C are: loose crops of faces, and lists that say which belong together.

::

    meta/<set>_face_tid_mid.txt          picture, template, medium
    meta/<set>_template_pair_label.txt   template, template, 1 for the same person and 0 for two
    meta/<set>_name_5pts_score.txt       picture, five points x y, how sure the detector was
    loose_crop/                          the pictures
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError
from ostinato.recognition.verification.embedding import BATCH_SIZE, embed_images
from ostinato.recognition.verification.pictures import PictureFile
from ostinato.recognition.verification.roc_curve import RocCurve, roc_curve
from ostinato.recognition.verification.templates import pair_scores, template_embeddings

PICTURES = "loose_crop"
META = "meta"
_MEDIA, _PAIRS, _POINTS = "_face_tid_mid.txt", "_template_pair_label.txt", "_name_5pts_score.txt"
_POINT_COLUMNS = 12


@dataclass(frozen=True, eq=False)
class TemplateSet:
    """Templates and pairs of them.

    :param name: of the set: ``ijbc``.
    :param pictures: (N), with the landmarks that they are to be aligned by.
    :param templates: (N,) the template of each picture, and ``media`` (N,) the medium.
    :param detector_scores: (N,).
    :param pairs: (P, 2) templates.
    :param same: (P,) whether they show the same person.
    """

    name: str
    pictures: Sequence[PictureFile]
    templates: NDArray[np.int64]
    media: NDArray[np.int64]
    detector_scores: NDArray[np.float64]
    pairs: NDArray[np.int64]
    same: NDArray[np.bool_]

    @property
    def template_count(self) -> int:
        """How many templates have pictures."""
        return len(np.unique(self.templates))


def is_template_folder(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is laid out so."""
    return (Path(folder) / META).is_dir() and (Path(folder) / PICTURES).is_dir()


def read_template_folder(folder: str | os.PathLike[str]) -> TemplateSet:
    """Read the lists of a folder; no picture is opened.

    :raises BadInputError: a list is missing or malformed, or names a picture of which nothing is known. Field:
        ``path``.
    """
    root = Path(folder)
    media, points, pairs = (_only(root / META, ending) for ending in (_MEDIA, _POINTS, _PAIRS))
    known = {row[0]: row[1:] for row in _rows(points, _POINT_COLUMNS)}
    pictures, templates, mediums, scores = [], [], [], []
    for name, template, medium in _rows(media, 3):
        if name not in known:
            raise _refused(media, f"{shown_name(name)} has no points in {points.name}")
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise _refused(media, f"the path {shown_name(name)} leaves the folder")
        numbers = _numbers(known[name], float, points)
        marks = tuple((numbers[at], numbers[at + 1]) for at in range(0, _POINT_COLUMNS - 2, 2))
        pictures.append(PictureFile(root / PICTURES / path, marks))
        templates.append(_numbers([template], int, media)[0])
        mediums.append(_numbers([medium], int, media)[0])
        scores.append(numbers[-1])
    try:
        rows = np.loadtxt(pairs, np.int64, comments=None, ndmin=2)
    except (ValueError, OSError) as error:
        raise _refused(pairs, str(error)) from error
    if rows.shape[1] != 3 or not len(rows) or not np.isin(rows[:, 2], (0, 1)).all():
        raise _refused(pairs, "two templates and 1 or 0 should stand on each line")
    return TemplateSet(
        pairs.name.removesuffix(_PAIRS),
        pictures,
        np.asarray(templates, np.int64),
        np.asarray(mediums, np.int64),
        np.asarray(scores, np.float64),
        rows[:, :2],
        rows[:, 2] == 1,
    )


def verify_templates(
    model: nn.Module,
    templates: TemplateSet,
    *,
    batch_size: int = BATCH_SIZE,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> RocCurve:
    """Embed the pictures, make templates of them and score their pairs.

    Memory: two float32 and two float64 embeddings a picture, and 32 bytes a pair.

    :param model: in evaluation mode, on ``device``.
    :returns: the curve without collinear points; :meth:`RocCurve.at` tells the rates that these sets are reported at.
    :raises BadInputError: a picture cannot be used.
    """
    embedded = embed_images(model, templates.pictures, batch_size=batch_size, device=device, progress=progress)
    ids, rows = template_embeddings(
        embedded.plain, embedded.mirrored, templates.templates, templates.media, templates.detector_scores
    )
    return roc_curve(pair_scores(ids, rows, templates.pairs), templates.same)


def _only(folder: Path, ending: str) -> Path:
    found = sorted(folder.glob(f"*{ending}"))
    if len(found) != 1:
        what = "no list" if not found else f"{len(found)} lists"
        raise BadInputError(
            f"{shown_name(folder)} holds {what} *{ending}.",
            advice="IJB-B and IJB-C have one of each kind.",
            path=str(folder),
        )
    return found[0]


def _rows(path: Path, columns: int) -> list[list[str]]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(path, str(error)) from error
    rows = [line.split() for line in lines if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) != columns:
            raise _refused(path, f"row {number} has {len(row)} columns and not {columns}")
    return rows


def _numbers(texts: Sequence[str], kind: Callable[[str], float], path: Path) -> list[float]:
    try:
        return [kind(text) for text in texts]
    except ValueError:
        raise _refused(path, f"{texts[0][:40]!r} should be a number") from None


def _refused(path: Path, why: str) -> BadInputError:
    return BadInputError(
        f"{shown_name(path)} cannot be used: {why}.", advice="Is the list of the right set, and whole?", path=str(path)
    )
