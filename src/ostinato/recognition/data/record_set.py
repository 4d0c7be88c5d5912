"""Sets of labelled pictures in a record file: plain ones, and identity sets with records that group the pictures.

In an identity set, record 0 says in two numbers which keys the pictures and which the identities have, and the record
of an identity says which keys its pictures have. These numbers are of single precision and wrong above 2**24, so
nothing here relies on them: a record is a picture if it holds one, and the identities follow from the pictures'
labels.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ostinato.data.file_names import shown_name
from ostinato.data.recordio.errors import record_error
from ostinato.data.recordio.index import RecordIndex, index_path, read_index
from ostinato.data.recordio.reader import RecordFile
from ostinato.errors import RecordError
from ostinato.recognition.data.record_keys import find_set_header, keys_without_index
from ostinato.recognition.data.record_scan import FLOAT_LIMIT, RecordScan, scan_records

PROPERTY_FILE = "property"
"""Name of the text file beside a set that says how many classes it has, and the pictures' height and width."""


@dataclass(frozen=True)
class SetProperty:
    """What the ``property`` file says."""

    classes: int
    height: int
    width: int


@dataclass(frozen=True)
class RecordSet:
    """A record file whose contents are known. Memory: about 70 bytes a record."""

    file: RecordFile
    scan: RecordScan
    keys: npt.NDArray[np.int64]
    """(n,) the key of every record of ``scan``; -1 for those that the index does not name."""
    images: npt.NDArray[np.int64]
    """Which records of ``scan`` are pictures with a usable label, in the order of the file."""
    labels: npt.NDArray[np.int64]
    """The label of each of ``images``."""
    bad: tuple[RecordError, ...] = ()
    """Records that cannot be used."""
    notes: tuple[str, ...] = ()
    """What a user should be told of this set, a sentence each."""
    header: tuple[float, float] | None = None
    """The two numbers (A, Z) of record 0 of an identity set; None for a plain set."""
    identity_rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Which records of ``scan`` are identity records."""
    index_records: int | None = None
    """How many records the index names, damaged ones included; None without one."""
    declared: SetProperty | None = None
    """What the ``property`` file beside the set says."""

    @property
    def index(self) -> RecordIndex:
        """The index as it ought to be: the named records in the order of the file."""
        named = self.keys >= 0
        return RecordIndex(self.keys[named], self.scan.offsets[named])


def open_record_set(
    path: str | os.PathLike[str], *, use_index: bool = True, progress: Callable[[int], None] | None = None
) -> RecordSet:
    """Open a record file and find out what it holds; reads all of it once.

    Without an index (``.idx`` beside it) the keys are rebuilt from the order and the ids of the records, and the notes
    say so.

    :param use_index: False does as if there were no index.
    :param progress: called now and then with the number of records so far.
    :return: a set whose file is open, to be closed by the caller.
    :raises RecordError: no RecordIO file, no picture in it, or an index that does not fit it (then the field
        ``bad_index`` is True).
    """
    file = RecordFile(path)
    file.open()
    try:
        index = read_index_of(file) if use_index and index_path(file.path).exists() else None
        scan = scan_records(file, offsets=index.offsets if index is not None else None, progress=progress)
        return _understand(file, scan, index, use_index)
    except BaseException:
        file.close()
        raise


def read_property(folder: str | os.PathLike[str]) -> SetProperty | None:
    """What the ``property`` file in a folder says; None where there is none.

    :raises RecordError: it does not begin with three whole numbers.
    """
    path = Path(folder) / PROPERTY_FILE
    try:
        with open(path, "rb") as file:
            line = file.readline(256)
    except OSError:
        return None
    parts = line.strip().split(b",")[:3]
    if len(parts) != 3 or not all(part.isdigit() and len(part) < 10 for part in parts):
        found = line.decode("ascii", "backslashreplace").strip()
        raise record_error(path, f"its first line is {found!r}, not 'number of classes,height,width'")
    return SetProperty(*map(int, parts))


def write_property(folder: Path, declared: SetProperty) -> None:
    """Write the ``property`` file of a folder, complete or not at all."""
    temporary = folder / f".{PROPERTY_FILE}.{secrets.token_hex(4)}.tmp"
    temporary.write_text(f"{declared.classes},{declared.height},{declared.width}\n", encoding="ascii")
    os.replace(temporary, folder / PROPERTY_FILE)


def _understand(file: RecordFile, scan: RecordScan, index: RecordIndex | None, use_index: bool) -> RecordSet:
    if not len(scan):
        raise _no_records(file, scan)
    notes: list[str] = []
    bad: list[RecordError] = []
    if index is not None:
        keys = _keys_from_index(file, scan, index, notes, bad)
    else:
        keys, how = keys_without_index(scan)
        if use_index:
            notes.append(
                f"There is no index {shown_name(index_path(file.path))}; the keys were found out from the records "
                f"themselves ({how}). "
                "'ostinato recognition inspect --write-index' stores them."
            )
        bad += [record_error(file.path, damage.reason, offset=damage.offset) for damage in scan.damage]
    known = keys >= 0
    for row in np.flatnonzero(known & (scan.flags < 0)):
        reason = f"its {scan.lengths[row]} bytes are too few for the header of a picture record"
        bad.append(record_error(file.path, reason, key=int(keys[row]), offset=int(scan.offsets[row])))
    header_row = find_set_header(scan, keys)
    header = None
    if header_row is not None:
        header = (float(scan.labels[header_row]), float(scan.seconds[header_row]))
    images = np.flatnonzero(known & scan.has_image)
    labels = scan.labels[images]
    usable = np.isfinite(labels) & (labels >= 0) & (labels <= FLOAT_LIMIT)
    for row in images[~usable]:
        reason = f"its label is {scan.labels[row]:g}; a label is a number from 0 to {FLOAT_LIMIT:,}"
        bad.append(record_error(file.path, reason, key=int(keys[row]), offset=int(scan.offsets[row])))
    images = images[usable]
    if not len(images):
        raise record_error(
            file.path, f"none of its {len(scan)} records holds a picture", advice="Give a set of pictures."
        )
    identity_rows = np.flatnonzero(known & ~scan.has_image & (scan.flags == 2))
    identity_rows = identity_rows[identity_rows != header_row] if header is not None else identity_rows[:0]
    if header is not None:
        note = _header_note(file, header, len(images) + int((~usable).sum()), len(identity_rows), bool(bad))
        notes += [note] if note else []
    if note := _gaps_note(file, scan.labels[images]):
        notes.append(note)
    declared = _property(file, notes)
    return RecordSet(
        file,
        scan,
        keys,
        images,
        scan.labels[images].astype(np.int64),
        tuple(bad),
        tuple(notes),
        header,
        identity_rows,
        len(index) if index is not None else None,
        declared,
    )


def read_index_of(file: RecordFile) -> RecordIndex:
    """The index beside a record file.

    :raises RecordError: it makes no sense; says what can be done.
    """
    try:
        return read_index(index_path(file.path), record_bytes=file.size)
    except RecordError as error:
        key, offset = error.fields["key"], error.fields["offset"]
        if key is not None and offset is not None and offset >= file.size:
            raise _cut_off(file, key, offset) from None
        raise _bad_index(file, error.fields["reason"]) from None


def _keys_from_index(
    file: RecordFile, scan: RecordScan, index: RecordIndex, notes: list[str], bad: list[RecordError]
) -> npt.NDArray[np.int64]:
    where = shown_name(index_path(file.path))
    notes += [f"The index {where} is odd: {oddity}." for oddity in index.oddities]
    rows = np.searchsorted(scan.offsets, index.offsets)
    rows[rows == len(scan)] = 0
    found = scan.offsets[rows] == index.offsets
    starts = np.array([damage.offset for damage in scan.damage], np.int64)
    ends = np.array([damage.end for damage in scan.damage], np.int64)
    for place in np.flatnonzero(~found):
        key, offset = int(index.keys[place]), int(index.offsets[place])
        inside = np.flatnonzero((starts <= offset) & (offset < ends))
        if not len(inside):
            raise _bad_index(file, f"key {key} is said to begin at byte {offset:,}, where no record begins")
        damage = scan.damage[inside[0]]
        reason = (
            damage.reason if damage.offset == offset else f"lost in the damage that begins at byte {damage.offset:,}"
        )
        bad.append(record_error(file.path, reason, key=key, offset=offset))
    keys = np.full(len(scan), -1, np.int64)
    keys[rows[found]] = index.keys[found]
    if left := int((keys < 0).sum()):
        notes.append(f"The index {where} does not name {left:,} of the {len(scan):,} records; they are not used.")
    return keys


def _bad_index(file: RecordFile, reason: str) -> RecordError:
    error = record_error(
        index_path(file.path),
        f"the index does not fit {shown_name(file.path.name)}: {reason}",
        advice="The record file may be whole. 'ostinato recognition inspect --write-index' rebuilds the index from it, "
        "and keeps the old one.",
    )
    error.fields["bad_index"] = True
    return error


def _cut_off(file: RecordFile, key: int, offset: int) -> RecordError:
    error = record_error(
        file.path,
        f"it ends at byte {file.size:,}, and its index says that key {key} begins at byte {offset:,}",
        advice="It was probably cut off while it was copied: copy or download it again. Only if the file is known to "
        "be whole, 'ostinato recognition inspect --write-index' makes an index of what is there.",
    )
    error.fields["bad_index"] = True
    return error


def _no_records(file: RecordFile, scan: RecordScan) -> RecordError:
    if not file.size:
        return record_error(file.path, "it is empty", advice="Copy or download it again.")
    return record_error(
        file.path,
        f"it is no RecordIO file, or damaged from the beginning on ({scan.damage[0].reason})",
        advice="Is it what was meant? A text of a hundred bytes in place of a large file is a pointer that Git LFS has "
        "not replaced."
        if file.size < 1000
        else "Copy or download it again.",
    )


def _header_note(
    file: RecordFile, header: tuple[float, float], images: int, identities: int, damaged: bool
) -> str | None:
    first, last = header
    says = f"Record 0 of {shown_name(file.path)} says {first - 1:,.0f} pictures and {last - first:,.0f} identities"
    if max(first, last) > FLOAT_LIMIT:
        return (
            f"{says}; above {FLOAT_LIMIT:,} such numbers are not exact, so the {images:,} pictures that are there are "
            "used, and identities are told by label."
        )
    if (first - 1, last - first) == (images, identities) or damaged:
        return None
    return f"{says}; there are {images:,} and {identities:,}. What is there is used."


def _gaps_note(file: RecordFile, labels: npt.NDArray[np.float32]) -> str | None:
    """Every class costs memory in training, so many that have no picture are worth a word."""
    classes, present = int(labels.max()) + 1, len(np.unique(labels))
    if classes <= 2 * present:
        return None
    return (
        f"The labels in {shown_name(file.path)} go up to {classes - 1:,}, and only {present:,} of these classes have "
        "pictures; the others cost memory in training for nothing."
    )


def _property(file: RecordFile, notes: list[str]) -> SetProperty | None:
    try:
        return read_property(file.path.parent)
    except RecordError as error:
        notes.append(error.what)
        return None
