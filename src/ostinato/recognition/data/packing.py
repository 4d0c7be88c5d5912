"""Making record files: from folders of people, from other record files in random order, and folders from them."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ostinato.data.file_names import shown_name
from ostinato.data.jpeg import ImageError, encode_jpeg
from ostinato.data.pictures import decode_rgb, encode_png, picture_size
from ostinato.data.recordio.chunks import MAX_LENGTH
from ostinato.data.recordio.image_record import HEADER, pack_image_record
from ostinato.data.recordio.index import index_path
from ostinato.data.recordio.writer import RecordWriter
from ostinato.errors import ArgumentValueError, DataSetError
from ostinato.recognition.data.fitting import fit_to_square
from ostinato.recognition.data.image_folder import FolderSet, picture_error, read_picture_file
from ostinato.recognition.data.in_order import map_in_order
from ostinato.recognition.data.record_scan import FLOAT_LIMIT
from ostinato.recognition.data.record_set import PROPERTY_FILE, SetProperty, open_record_set, write_property
from ostinato.recognition.data.record_source import RecordSource
from ostinato.recognition.data.source import DEFAULT_MAX_BAD, BadImages

_IDENTITY_SET_MARK = 1  # the second id of record 0, as writers of such sets put it


@dataclass(frozen=True)
class PackOptions:
    """How pictures are stored."""

    image_size: int | None = 112
    """Pixels a side; other pictures are resized (shorter side) and cut to the middle square. None keeps them."""
    format: Literal["jpeg", "png"] = "jpeg"
    """What pictures become that have to be stored anew: those of another size or format. All others stay as they
    are, byte for byte."""
    quality: int = 95
    """Of JPEG pictures that have to be stored anew, 1 to 100."""
    plain: bool = False
    """Without the records that group the pictures by identity: no limit on their number, and not readable by
    programs that need the groups."""

    def __post_init__(self) -> None:
        if not 1 <= self.quality <= 100:
            raise ArgumentValueError(f"quality is {self.quality}.", advice="Use 1 to 100.")
        if self.image_size is not None and not 16 <= self.image_size <= 4096:
            raise ArgumentValueError(f"image_size is {self.image_size}.", advice="Use 16 to 4096 pixels.")


@dataclass(frozen=True)
class Packed:
    """What was written."""

    images: int
    identities: int
    """Classes, those whose pictures could not be used included."""
    bytes: int
    """Size of the record file."""
    unchanged: int = 0
    """Pictures stored byte for byte as they were."""
    skipped: tuple[DataSetError, ...] = ()
    """What was wrong with the pictures that are left out."""
    without_images: tuple[str, ...] = ()
    """Identities none of whose pictures could be used; they keep their class."""


def pack_folder(
    found: FolderSet,
    out: str | os.PathLike[str],
    options: PackOptions | None = None,
    *,
    overwrite: bool = False,
    max_bad_records: int = DEFAULT_MAX_BAD,
    progress: Callable[[int, int], None] | None = None,
) -> Packed:
    """Write a folder of people as an identity set: the record file, its index and the ``property`` file.

    Keys 1 to A - 1 are the pictures, identity by identity, then one record per identity with the range of its keys, and
    at last record 0 with where these begin and end. The label of an identity is its place among the folders.

    :param out: the ``.rec`` file. It appears when it is complete.
    :param overwrite: replace files that are there.
    :param progress: called as ``progress(done, total)`` after each picture.
    :raises DataSetError: more pictures than allowed cannot be used; or too many for this kind of set.
    """
    options = options if options is not None else PackOptions()
    out = check_out(out, overwrite)
    _check_limit(found, options)
    bad = BadImages(max_bad_records)
    total, done, unchanged = found.images, 0, 0
    counts = np.zeros(len(found.identities), np.int64)
    size = (options.image_size, options.image_size) if options.image_size is not None else None
    first_key = 0 if options.plain else 1
    key = first_key
    with RecordWriter(out) as writer:
        for label, path, encoded in _encode_all(found, options):
            done += 1
            if isinstance(encoded, DataSetError):
                bad.add(path, encoded)
            else:
                writer.write(key, pack_image_record(label, encoded.data, id=key))
                key += 1
                counts[label] += 1
                unchanged += encoded.unchanged
                size = size if size is not None else encoded.size
            if progress is not None:
                progress(done, total)
        if size is None or not counts.any():
            raise DataSetError(f"None of the {total} pictures can be used.", path=os.fspath(found.root))
        if not options.plain:
            _write_identities(writer, counts.tolist())
    write_property(out.parent, SetProperty(len(counts), *size))
    return Packed(
        key - first_key,
        len(counts),
        out.stat().st_size,
        unchanged,
        tuple(bad.errors),
        tuple(found.identities[label].name for label in np.flatnonzero(counts == 0)),
    )


def pack_again(
    stored: Callable[[int], bytes],
    chosen: np.ndarray,
    labels: np.ndarray,
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Packed:
    """Write some of the pictures of a set as another one, byte for byte: an identity set as :func:`pack_folder` makes
    it, or a plain one where there are too many for that.

    :param stored: gives the encoded bytes of a picture by number.
    :param chosen: (n,) integers, the numbers of the pictures.
    :param labels: (n,) integers, their classes, 0 or more; each class below the largest has a picture.
    :param out: the ``.rec`` file. It appears when it is complete.
    :param overwrite: replace files that are there.
    :param progress: called as ``progress(done, total)`` after each picture.
    :raises DataSetError: files are in the way, or what ``stored`` raises; nothing is written then.
    """
    out = check_out(out, overwrite)
    counts = [int(count) for count in np.bincount(labels)]
    plain = 1 + len(chosen) + len(counts) > FLOAT_LIMIT
    first_key = 0 if plain else 1
    order = np.argsort(labels, kind="stable")  # the pictures of a class lie side by side
    size: tuple[int, int] | None = None
    with RecordWriter(out) as writer:
        for done, place in enumerate(order):
            data = stored(int(chosen[place]))
            if size is None:
                found = picture_size(data)
                size = (found.height, found.width)
            writer.write(first_key + done, pack_image_record(float(labels[place]), data, id=first_key + done))
            if progress is not None:
                progress(done + 1, len(order))
        if not plain:
            _write_identities(writer, counts)
    assert size is not None
    write_property(out.parent, SetProperty(len(counts), *size))
    return Packed(len(chosen), len(counts), out.stat().st_size, len(chosen))


def shuffle_records(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    seed: int = 0,
    overwrite: bool = False,
    max_bad_records: int = DEFAULT_MAX_BAD,
    progress: Callable[[int, int], None] | None = None,
) -> Packed:
    """Write the pictures of a set in random order as a plain set: keys 0, 1, 2, ..., one label each, ids kept.

    For programs that read a file from front to back; Ostinato draws its order itself.

    :param seed: the same seed, the same order.
    :raises DataSetError: more records than allowed cannot be used.
    """
    found = open_record_set(path)
    try:
        out = check_out(out, overwrite, with_property=found.declared is not None, source=found.file.path)
        source = RecordSource(found, max_bad_records=max_bad_records)
        written = 0
        order = np.random.Generator(np.random.PCG64(seed)).permutation(len(source))
        with RecordWriter(out) as writer:
            for number, index in enumerate(order):
                try:
                    record = source.record(int(index))
                except DataSetError as error:
                    source.bad.add(int(index), error)
                else:
                    label = float(source.labels[index])
                    writer.write(written, pack_image_record(label, record.image, id=record.id, id2=record.id2))
                    written += 1
                if progress is not None:
                    progress(number + 1, len(order))
        if found.declared is not None and out.parent != found.file.path.parent:
            write_property(out.parent, found.declared)
        return Packed(written, source.classes, out.stat().st_size, written, tuple(source.bad.errors))
    finally:
        found.file.close()


def unpack_records(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    max_bad_records: int = DEFAULT_MAX_BAD,
    progress: Callable[[int, int], None] | None = None,
) -> Packed:
    """Write the pictures of a set as files, byte for byte: ``id_<label>/<label>_<number>.jpg``.

    Labels are filled up with zeros, so that the folders sort as the classes do.

    :param folder: must not be there yet; it appears when it is complete.
    :raises DataSetError: it is there, or more records than allowed cannot be used.
    """
    folder = Path(folder)
    if folder.exists():
        raise DataSetError(f"{shown_name(folder)} is there already.", advice="Name a new one.", path=os.fspath(folder))
    found = open_record_set(path)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        source = RecordSource(found, max_bad_records=max_bad_records)
        digits = len(str(source.classes - 1))
        numbers = np.zeros(source.classes, np.int64)
        size = 0
        temporary.mkdir()
        for index in range(len(source)):
            label = int(source.labels[index])
            try:
                data = source.record(index).image
                ending = {"JPEG": "jpg", "PNM": "ppm"}.get(kind := picture_size(data).format, kind.lower())
            except (ImageError, DataSetError) as error:
                named = error if isinstance(error, DataSetError) else picture_error(source.place(index), str(error))
                source.bad.add(index, named)
            else:
                name = f"{label:0{digits}d}"
                if numbers[label] == 0:
                    (temporary / f"id_{name}").mkdir()
                (temporary / f"id_{name}" / f"{name}_{numbers[label]}.{ending}").write_bytes(data)
                numbers[label] += 1
                size += len(data)
            if progress is not None:
                progress(index + 1, len(source))
        os.rename(temporary, folder)
        return Packed(int(numbers.sum()), int((numbers > 0).sum()), size, int(numbers.sum()), tuple(source.bad.errors))
    finally:
        found.file.close()
        shutil.rmtree(temporary, ignore_errors=True)


@dataclass(frozen=True)
class _Encoded:
    data: bytes
    unchanged: bool
    size: tuple[int, int]


def _encode_all(found: FolderSet, options: PackOptions) -> Iterator[tuple[int, Path, _Encoded | DataSetError]]:
    def encode(item: tuple[int, Path]) -> tuple[int, Path, _Encoded | DataSetError]:
        label, path = item
        try:
            return label, path, _encode(path, options)
        except DataSetError as error:
            return label, path, error

    files = (
        (label, found.root / identity.name / file)
        for label, identity in enumerate(found.identities)
        for file in identity.files
    )
    return map_in_order(encode, files)


def _encode(path: Path, options: PackOptions) -> _Encoded:
    data = read_picture_file(path)
    try:
        image = decode_rgb(data)  # what is stored unchanged is decoded too: a damaged picture must not get into the set
        fitted = fit_to_square(image, options.image_size) if options.image_size is not None else image
        kind = picture_size(data).format
    except ImageError as error:
        raise picture_error(path, str(error)) from None
    height, width = fitted.shape[:2]
    unchanged = fitted is image and kind in ("JPEG", options.format.upper())
    if not unchanged:
        data = encode_png(fitted) if options.format == "png" else encode_jpeg(fitted, options.quality)
    if len(data) + HEADER.size > MAX_LENGTH:
        raise picture_error(path, f"it has {len(data):,} bytes, and a record has room for {MAX_LENGTH:,}")
    return _Encoded(data, unchanged, (height, width))


def _write_identities(writer: RecordWriter, counts: list[int]) -> None:
    begin = 1
    first_identity = 1 + sum(counts)
    for number, count in enumerate(counts):
        key = first_identity + number
        writer.write(key, pack_image_record((begin, begin + count), b"", id=key))
        begin += count
    limits = (first_identity, first_identity + len(counts))
    writer.write(0, pack_image_record(limits, b"", id=0, id2=_IDENTITY_SET_MARK))


def _check_limit(found: FolderSet, options: PackOptions) -> None:
    keys = 1 + found.images + len(found.identities)
    if len(found.identities) > FLOAT_LIMIT:
        what = f"{shown_name(found.root)} has {len(found.identities):,} identities"
        advice = "Record files cannot hold such a set; train from the folder."
    elif keys > FLOAT_LIMIT and not options.plain:
        what = f"{shown_name(found.root)} has {found.images:,} pictures of {len(found.identities):,} identities"
        advice = (
            "Write a plain set (--plain): it has no such numbers, and Ostinato needs none. Or split the folder into "
            "several sets."
        )
    else:
        return
    raise DataSetError(
        f"{what}. Identity sets store keys and labels as single-precision numbers, which are exact up to "
        f"{FLOAT_LIMIT:,}; beyond, the pictures of some identities would be mixed up.",
        advice=advice,
        path=os.fspath(found.root),
    )


def check_out(
    out: str | os.PathLike[str], overwrite: bool, *, with_property: bool = True, source: Path | None = None
) -> Path:
    """Refuse a name that cannot be written, before any work is done.

    :param overwrite: files that are there may be replaced.
    :param with_property: a ``property`` file is going to be written beside it.
    :param source: the record file that is read.
    :raises DataSetError: naming what is in the way.
    """
    out = Path(out)
    if out.suffix != ".rec":
        raise DataSetError(f"{shown_name(out)} does not end with .rec.", advice="Name it so.", path=os.fspath(out))
    if source is not None and out.exists() and out.samefile(source):
        raise DataSetError(f"{shown_name(out)} is the set itself.", advice="Name another file.", path=os.fspath(out))
    if not out.parent.is_dir():
        raise DataSetError(f"There is no folder {shown_name(out.parent)}.", advice="Make it.", path=os.fspath(out))
    beside = [out.with_name(PROPERTY_FILE)] if with_property else []
    if source is not None and source.parent.samefile(out.parent):
        beside = []  # the one that is there describes both
    there = [each for each in (out, index_path(out), *beside) if each.exists()]
    if there and not overwrite:
        raise DataSetError(
            f"There already: {', '.join(shown_name(each) for each in there)}.",
            advice="Name a file in another folder, or replace what is there with --overwrite.",
            path=os.fspath(out),
        )
    return out
