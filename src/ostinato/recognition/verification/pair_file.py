"""``.bin`` pair files: read without executing them, and written so that others read them."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ostinato.data.file_names import shown_name
from ostinato.data.pictures import encode_png, picture_size
from ostinato.errors import BadInputError
from ostinato.recognition.verification.pair_pickle import read_pair_pickle
from ostinato.recognition.verification.pair_set import PairSet
from ostinato.recognition.verification.pictures import IMAGE_SIZE, Picture, PictureBytes, prepare_picture
from ostinato.runs.atomic import Files

SUFFIX = ".bin"

MAX_BYTES = 8 * 2**30
"""Larger files are not read. The usual ones have 50 to 200 MB."""


def read_pair_file(path: str | Path) -> PairSet:
    """Read a ``.bin`` file: a Python pickle, which is interpreted as data and never executed.

    Memory: the file, twice while it is read.

    :raises BadInputError: it cannot be read, is too large, is damaged, has an odd number of pictures or another number
        of answers than pairs, or holds anything that no pair file needs. Field: ``path``.
    """
    path = Path(path)
    shown = shown_name(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise BadInputError(
                f"{shown} has {size:,} bytes; pair files of up to {MAX_BYTES:,} are read.",
                advice="Is it a pair file?",
                path=str(path),
            )
        data = path.read_bytes()
    except OSError as error:
        raise BadInputError(
            f"{shown} cannot be read: {error.strerror or error}.", advice="Check the path.", path=str(path)
        ) from error
    pictures, same = read_pair_pickle(data, shown)
    if len(pictures) != 2 * len(same) or not same:
        raise BadInputError(
            f"{shown} holds {len(pictures):,} pictures and {len(same):,} answers.",
            advice="There should be two pictures for each answer, and at least one pair.",
            path=str(path),
        )
    # A picture in several pairs may be written once and referred to: then it is one object here, too.
    places: dict[int, int] = {}
    named: list[PictureBytes] = []
    for number, picture in enumerate(pictures):
        if places.setdefault(id(picture), len(named)) == len(named):
            named.append(PictureBytes(f"{shown}, picture {number} (pair {number // 2 + 1})", picture))
    pairs = np.asarray([places[id(picture)] for picture in pictures], np.int64).reshape(-1, 2)
    return PairSet(path.stem, named, pairs, np.asarray(same, bool))


def write_pair_file(
    path: str | Path, pairs: PairSet, *, size: int = IMAGE_SIZE, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write pairs as a ``.bin`` file (a pickle of protocol 3), in one step: a reader sees all of it or nothing.

    JPEG and PNG pictures of the right size go in as they are. Others are brought to it (see
    :func:`~ostinato.recognition.verification.pictures.prepare_picture`) and go in as PNG, which loses nothing. Pictures
    are read one by one; one that is in several pairs is written once and referred to, as pickle does by itself.

    :param size: pixels a side.
    :param progress: called with pictures done and all.
    :raises BadInputError: a picture cannot be used; names it.
    :raises OSError: the disk refuses.
    """
    numbers = [int(number) for number in pairs.pairs.reshape(-1)]
    uses = Counter(numbers)

    def pieces() -> Iterator[bytes]:
        kept: dict[int, int] = {}  # numbers of pictures to their places in the memo
        yield b"\x80\x03]("  # protocol 3; a list, and a mark for what goes into it
        for done, number in enumerate(numbers):
            if number in kept:
                yield b"j" + struct.pack("<I", kept[number])
            else:
                data = packed_picture(pairs.pictures[number], size)
                yield b"B" + struct.pack("<I", len(data)) + data
                if uses[number] > 1:
                    kept[number] = len(kept)
                    yield b"r" + struct.pack("<I", kept[number])
            if progress is not None:
                progress(done + 1, len(numbers))
        yield b"e](" + bytes(0x88 if same else 0x89 for same in pairs.same) + b"e\x86."

    target = Path(path)
    Files().make_folder(target.parent)
    Files().replace(target, pieces)


def packed_picture(picture: Picture, size: int = IMAGE_SIZE) -> bytes:
    """A picture as it goes into a pair file; see :func:`write_pair_file`."""
    prepared = prepare_picture(picture, size)
    data = picture.read()
    found = picture_size(data)
    fits = (found.height, found.width) == (size, size) and picture.landmarks is None
    return data if fits and found.format in ("JPEG", "PNG") else encode_png(prepared)
