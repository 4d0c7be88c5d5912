"""Finding out what a path holds, and opening it as a source of training pictures."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from ostinato.data.file_names import shown_name
from ostinato.errors import DataSetError
from ostinato.faces.scan import name_a_few
from ostinato.recognition.data.image_folder import FolderSource, scan_identities
from ostinato.recognition.data.record_set import open_record_set
from ostinato.recognition.data.record_source import RecordSource
from ostinato.recognition.data.source import DEFAULT_MAX_BAD, Source
from ostinato.recognition.data.synthetic import SyntheticSource

_log = logging.getLogger(__name__)

TRAINING_FILE = "train.rec"
"""Name of the record file in a folder that is given in place of a file."""

SYNTHETIC = "synthetic"
"""The word that asks for drawn patterns in place of a path."""


def open_source(
    root: str | os.PathLike[str],
    *,
    classes: int = 10_000,
    images: int = 1_000_000,
    image_size: int = 112,
    seed: int = 0,
    min_images: int = 1,
    max_bad_records: int = DEFAULT_MAX_BAD,
    progress: Callable[[int], None] | None = None,
) -> Source:
    """Open a set of training pictures.

    The word ``synthetic`` gives seeded patterns; a ``.rec`` file, or a folder with ``train.rec``, is a record file, and
    all of it is read once; anything else is a folder with one sub-folder per identity. What is odd about a set is
    logged as warnings.

    :param root: the word or the path.
    :param classes: of the synthetic set: how many identities.
    :param images: of the synthetic set: how many pictures.
    :param image_size: of the synthetic set: pixels a side.
    :param seed: of the synthetic set: another seed, other identities.
    :param min_images: identities with fewer pictures are left out.
    :param max_bad_records: damaged pictures that are skipped before the set is refused.
    :param progress: called now and then with the number of pictures found so far.
    :return: a source, to be closed by the caller.
    :raises DataSetError: there is nothing at ``root``, or it cannot be used.
    """
    if os.fspath(root) == SYNTHETIC:
        return SyntheticSource(classes, images, image_size=image_size, seed=seed)
    path = Path(root)
    if not path.exists():
        raise DataSetError(
            f"There is no {shown_name(path)}.",
            advice=f"Give a .rec file, a folder with train.rec, a folder of people, or the word {SYNTHETIC!r}.",
            path=os.fspath(path),
        )
    if records := find_record_file(path):
        record_set = open_record_set(records, progress=progress)
        for note in record_set.notes:
            _log.warning("%s", note)
        try:
            return RecordSource(record_set, min_images=min_images, max_bad_records=max_bad_records)
        except BaseException:
            record_set.file.close()
            raise
    found = scan_identities(path, min_images=min_images, progress=progress)
    for note in found.notes():
        _log.warning("%s", note)
    return FolderSource(found, max_bad_records=max_bad_records)


def find_record_file(path: Path) -> Path | None:
    """The record file that a path means: itself, or ``train.rec`` in a folder. None: it means a folder of people.

    :raises DataSetError: a folder with record files of other names and nothing else.
    """
    if path.is_file():
        return path
    if (path / TRAINING_FILE).is_file():
        return path / TRAINING_FILE
    records = sorted(each.name for each in path.glob("*.rec"))
    if records and not any(each.is_dir() for each in path.iterdir()):
        raise DataSetError(
            f"{shown_name(path)} holds no {TRAINING_FILE}, but {name_a_few(records)}.",
            advice="Name the file itself.",
            path=os.fspath(path),
        )
    return None
