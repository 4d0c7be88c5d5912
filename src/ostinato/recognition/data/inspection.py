"""What a set of training pictures holds and what is wrong with it, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ostinato.data.file_names import shown_name
from ostinato.data.jpeg import ImageError
from ostinato.data.pictures import decode_rgb, picture_size
from ostinato.errors import DataSetError, RecordError
from ostinato.recognition.data.image_folder import (
    FolderSource,
    picture_error,
    read_picture_file,
    scan_identities,
)
from ostinato.recognition.data.in_order import map_in_order
from ostinato.recognition.data.record_set import RecordSet, open_record_set
from ostinato.recognition.data.record_source import RecordSource

_NO_LIMIT = 2**63


@dataclass(frozen=True)
class SetReport:
    """What was found."""

    path: Path
    kind: str
    """``identity set``, ``plain set`` or ``folder of people``."""
    images: int
    """Pictures, damaged ones included."""
    counts: dict[str, int]
    """Pictures of each identity: of its label, or of the name of its folder. In the order of the classes."""
    missing_labels: int
    """Classes below the largest label that have no picture."""
    bytes: int
    sizes: dict[tuple[int, int], int]
    """How many pictures have which width and height."""
    formats: dict[str, int]
    """How many pictures have which format."""
    bad: tuple[DataSetError, ...]
    """What cannot be used."""
    notes: tuple[str, ...]
    index: str = ""
    """What there is to say about the index of a record file."""
    bad_index: RecordError | None = None
    """The index does not fit the record file; everything else here is as if there were none."""


def inspect_set(
    path: Path, records: Path | None, *, decode: bool = False, progress: Callable[[int, int], None] | None = None
) -> SetReport:
    """Read all of a set.

    :param path: what the user named.
    :param records: the record file that it means; None for a folder of people.
    :param decode: decode every picture, which finds damage in the pixels too, as far as the format lets it show;
        otherwise only the headers are read.
    :param progress: called as ``progress(done, total)`` after each picture.
    :raises DataSetError: there is no set, or nothing in it can be understood.
    """
    if records is None:
        found = scan_identities(path)
        source = FolderSource(found, max_bad_records=_NO_LIMIT)
        names = [identity.name for identity in found.identities]
        bytes_read, sizes, formats, bad = _look(
            source, lambda index: read_picture_file(source.path(index)), decode, progress
        )
        return SetReport(
            path,
            "folder of people",
            len(source),
            dict(zip(map(shown_name, names), map(int, np.bincount(source.labels)), strict=True)),
            0,
            bytes_read,
            sizes,
            formats,
            tuple(bad),
            tuple(found.notes()),
        )
    bad_index: RecordError | None = None
    try:
        found_set = open_record_set(records)
    except RecordError as error:
        if not error.fields.get("bad_index"):
            raise
        bad_index = error
        found_set = open_record_set(records, use_index=False)
    try:
        record_source = RecordSource(replace(found_set, bad=()), max_bad_records=_NO_LIMIT)
        _, sizes, formats, bad = _look(record_source, lambda index: record_source.record(index).image, decode, progress)
        counts = np.bincount(record_source.labels)
        return SetReport(
            records,
            "identity set" if found_set.header is not None else "plain set",
            len(record_source),
            {str(label): int(counts[label]) for label in np.flatnonzero(counts)},
            int((counts == 0).sum()),
            found_set.file.size,
            sizes,
            formats,
            (*found_set.bad, *bad),
            (*found_set.notes, *_range_notes(found_set), *_property_notes(found_set)),
            _about_index(found_set, bad_index),
            bad_index,
        )
    finally:
        found_set.file.close()


def _look(
    source: FolderSource | RecordSource,
    data_of: Callable[[int], bytes],
    decode: bool,
    progress: Callable[[int, int], None] | None,
) -> tuple[int, dict[tuple[int, int], int], dict[str, int], list[DataSetError]]:
    def look(index: int) -> tuple[int, str, tuple[int, int]] | DataSetError:
        try:
            data = data_of(index)
            size = picture_size(data)
            if decode:
                decode_rgb(data)
            return len(data), size.format, (size.width, size.height)
        except DataSetError as error:
            return error
        except ImageError as error:
            if isinstance(source, FolderSource):
                return picture_error(source.path(index), str(error))
            return source.error(index, f"the picture cannot be used: {error}")

    total, bytes_read = len(source), 0
    sizes: Counter[tuple[int, int]] = Counter()
    formats: Counter[str] = Counter()
    bad: list[DataSetError] = []
    for number, seen in enumerate(map_in_order(look, range(total)), 1):
        if isinstance(seen, DataSetError):
            bad.append(seen)
        else:
            bytes_read += seen[0]
            formats[seen[1]] += 1
            sizes[seen[2]] += 1
        if progress is not None:
            progress(number, total)
    return bytes_read, dict(sizes.most_common()), dict(formats.most_common()), bad


def _about_index(found: RecordSet, bad_index: RecordError | None) -> str:
    if bad_index is not None:
        return f"{bad_index.fields['reason']}"
    if found.index_records is None:
        return "none"
    return f"names {found.index_records:,} records, and fits"


def _range_notes(found: RecordSet) -> list[str]:
    """Whether the identity records say the same as the labels; nothing here relies on them, other programs do."""
    order = np.argsort(found.keys[found.images], kind="stable")
    keys, labels = found.keys[found.images][order], found.labels[order]
    wrong: list[int] = []
    for row in found.identity_rows:
        begin, end = float(found.scan.labels[row]), float(found.scan.seconds[row])
        inside = labels[slice(*np.searchsorted(keys, (begin, end)))] if begin <= end else None
        if inside is None or (inside != inside[:1]).any():
            wrong.append(int(found.keys[row]))
    if not wrong:
        return []
    some = f"key {wrong[0]}{', ...' if len(wrong) > 1 else ''}"
    note = (
        f"{len(wrong):,} identity records ({some}) name pictures of several labels, or no range of keys. Programs that "
        "read identities from these records mix people up; Ostinato goes by the labels."
    )
    return [note]


def _property_notes(found: RecordSet) -> list[str]:
    declared = found.declared
    largest = int(found.labels.max()) + 1
    if declared is None or declared.classes == largest:
        return []
    return [f"The property file says {declared.classes:,} classes; the largest label makes {largest:,}."]
