"""Pictures of a user to compare an exported network on."""

from __future__ import annotations

import os
from pathlib import Path

from torch import Tensor

from ostinato.data.file_names import shown_name
from ostinato.data.pictures import PICTURE_SUFFIXES
from ostinato.errors import BadInputError
from ostinato.recognition.verification.pictures import PictureFile, prepare_picture, to_input

MOST_PICTURES = 64
"""More pictures of a folder are not read: the comparison would not get better."""


def read_check_pictures(path: Path, most: int = MOST_PICTURES) -> Tensor:
    """Read pictures as a backbone takes them.

    :param path: a picture, or a folder with pictures in it or in its sub-folders, of which the first are taken,
        sub-folder by sub-folder in the order of their names.
    :returns: ``[n, 3, 112, 112]``, float32, RGB, -1 to 1, n from 1 to ``most``.
    :raises BadInputError: there are no pictures, or one cannot be used.
    """
    files = [path] if path.is_file() else _first_pictures(path, most)
    if not files:
        raise BadInputError(
            f"{shown_name(path)} is no picture and no folder with pictures in it.",
            advice="Give a picture of a face, or a folder of them.",
            path=str(path),
        )
    return to_input([prepare_picture(PictureFile(file)) for file in files])


def _first_pictures(folder: Path, most: int) -> list[Path]:
    found: list[Path] = []
    seen: set[str] = set()  # people may be links to folders elsewhere; a link to a folder above would lead in circles
    for root, folders, names in os.walk(folder, followlinks=True):
        place = os.path.realpath(root)
        if place in seen:
            folders.clear()
            continue
        seen.add(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if Path(name).suffix.lower() in PICTURE_SUFFIXES and not name.startswith("."):
                found.append(Path(root, name))
                if len(found) == most:
                    return found
    return found
