"""Small picture sets for tests: folders of people and record files, drawn from a formula."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ostinato.data.jpeg import encode_jpeg
from ostinato.data.pictures import encode_png
from ostinato.data.recordio import RecordWriter, pack_image_record


def picture(number: int, size: int = 16) -> npt.NDArray[np.uint8]:
    """(size, size, 3) uint8; another number, another picture."""
    rows, columns = np.mgrid[0:size, 0:size]
    channels = [(rows * (number % 5 + 1) + columns * 3 + number * 31 * shade) % 256 for shade in (1, 2, 3)]
    return np.stack(channels, axis=2).astype(np.uint8)


def jpeg(number: int, size: int = 16) -> bytes:
    """A picture as JPEG."""
    return encode_jpeg(picture(number, size), 95)


def write_people(folder: Path, counts: dict[str, int], *, size: int = 16, ending: str = "jpg") -> Path:
    """A folder with so many pictures of each name."""
    number = 0
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for index in range(count):
            data = jpeg(number, size) if ending == "jpg" else encode_png(picture(number, size))
            (folder / name / f"{index:03d}.{ending}").write_bytes(data)
            number += 1
    return folder


def write_plain_set(path: Path, labels: Sequence[float]) -> Path:
    """A plain set with keys 0, 1, 2, ... and a label each."""
    with RecordWriter(path) as writer:
        for key, label in enumerate(labels):
            writer.write(key, pack_image_record(label, jpeg(key), id=key))
    return path


def write_identity_set(path: Path, counts: Sequence[int]) -> Path:
    """An identity set with so many pictures of the labels 0, 1, 2, ..."""
    with RecordWriter(path) as writer:
        key = 1
        for label, count in enumerate(counts):
            for _ in range(count):
                writer.write(key, pack_image_record((label, 0.5), jpeg(key), id=key))
                key += 1
        first, begin = key, 1
        for count in counts:
            writer.write(key, pack_image_record((begin, begin + count), b"", id=key))
            begin += count
            key += 1
        writer.write(0, pack_image_record((first, key), b"", id=0, id2=1))
    return path
