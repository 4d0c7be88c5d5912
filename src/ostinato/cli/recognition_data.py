"""``ostinato recognition pack``, ``inspect``, ``shuffle`` and ``unpack``: sets of training pictures."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ostinato.cli.progress_bar import progress_bar
from ostinato.cli.wording import check_range
from ostinato.data.file_names import shown_name
from ostinato.errors import DataSetError, UsageError

if TYPE_CHECKING:
    from ostinato.recognition.data.inspection import SetReport
    from ostinato.recognition.data.packing import Packed

_NAMED_AT_MOST = 20
_SIZES_AT_MOST = 5

_SetArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SET", help="A .rec file, a folder with train.rec, or a folder of people.", show_default=False
    ),
]
_RecordsArgument = Annotated[
    Path, typer.Argument(metavar="IN.rec", help="A .rec file, or a folder with train.rec.", show_default=False)
]
_OutArgument = Annotated[Path, typer.Argument(metavar="OUT.rec", help="The file to write.", show_default=False)]
_Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")]
_MaxBad = Annotated[int, typer.Option("--max-bad-records", help="Damaged pictures that are left out before giving up.")]


class PictureFormat(str, Enum):
    """What pictures are stored as that are not stored unchanged."""

    JPEG = "jpeg"
    PNG = "png"


def pack(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="One sub-folder of pictures per identity.", show_default=False)
    ],
    out: _OutArgument,
    size: Annotated[
        int,
        typer.Option("--size", help="Pixels a side: others are resized and cut to the middle square; 0 keeps them."),
    ] = 112,
    format: Annotated[
        PictureFormat,
        typer.Option(help="What pictures become that are resized or no JPEG. PNG has no loss and needs more room."),
    ] = PictureFormat.JPEG,
    quality: Annotated[int, typer.Option(help="Of JPEG pictures that are stored anew, 1 to 100.")] = 95,
    min_images: Annotated[int, typer.Option("--min-images", help="Leave out identities with fewer pictures.")] = 1,
    plain: Annotated[
        bool, typer.Option("--plain", help="Without the records that group the pictures; for more than 16.7 million.")
    ] = False,
    overwrite: _Overwrite = False,
    max_bad_records: _MaxBad = 100,
) -> None:
    """Write a folder of people as one record file, with an index and a property file beside it.

    The label of an identity is its place among the folders, sorted by name. JPEG pictures of the right size are stored
    unchanged. The files appear when they are complete.
    """
    from ostinato.recognition.data.image_folder import scan_identities
    from ostinato.recognition.data.packing import PackOptions, check_out, pack_folder

    if size != 0:
        check_range("--size", size, 16, 4096)
    check_range("--quality", quality, 1, 100)
    check_range("--min-images", min_images, 1, None)
    check_range("--max-bad-records", max_bad_records, 0, None)
    check_out(out, overwrite)
    found = scan_identities(folder, min_images=min_images)
    for note in found.notes():
        typer.echo(note)
    typer.echo(f"{found.images:,} pictures of {len(found.identities):,} identities in {shown_name(folder)}")
    with progress_bar("packing") as progress:
        packed = pack_folder(
            found,
            out,
            PackOptions(size or None, format.value, quality, plain),
            overwrite=overwrite,
            max_bad_records=max_bad_records,
            progress=progress,
        )
    for name in packed.without_images[:_NAMED_AT_MOST]:
        typer.echo(f"none of the pictures of {shown_name(name)} can be used; its class stays, without pictures")
    anew = packed.images - packed.unchanged
    typer.echo(f"stored unchanged: {packed.unchanged:,}; as {_described(format, quality, size)}: {anew:,}")
    _tell_written(packed, out)


def inspect(
    path: _SetArgument,
    decode: Annotated[
        bool,
        typer.Option(
            "--decode", help="Decode every picture: finds damage in the pixels too, as far as the format lets it show."
        ),
    ] = False,
    write_index: Annotated[
        bool,
        typer.Option("--write-index", help="Write a new index from what the record file holds; keeps the old one."),
    ] = False,
) -> None:
    """Show what a set of training pictures holds, and what is wrong with it. Ends with status 3 when something is."""
    from ostinato.recognition.data.inspection import inspect_set
    from ostinato.recognition.data.opening import find_record_file

    if not path.exists():
        raise DataSetError(f"There is no {shown_name(path)}.", advice="Name a .rec file or a folder.", path=str(path))
    records = find_record_file(path)
    if write_index:
        if records is None:
            raise UsageError(f"{shown_name(path)} is a folder of people, and has no index.", advice="Name a .rec file.")
        _write_index(records)
    with progress_bar("reading") as progress:
        report = inspect_set(path, records, decode=decode, progress=progress)
    _show(report, decode)
    if report.bad_index is not None:
        raise report.bad_index
    if report.bad:
        raise DataSetError(
            f"{len(report.bad):,} of its records or pictures cannot be used.",
            advice="Training leaves them out, up to a bound. If there are many, copy or download the set again.",
            path=str(path),
        )


def shuffle(
    records: _RecordsArgument,
    out: _OutArgument,
    seed: Annotated[int, typer.Option(help="Another seed, another order.")] = 0,
    overwrite: _Overwrite = False,
    max_bad_records: _MaxBad = 100,
) -> None:
    """Write the pictures of a set in random order, as a plain set with one label each.

    For programs that read a file from front to back. Ostinato draws its order itself and needs no shuffled set.
    """
    from ostinato.recognition.data.packing import shuffle_records

    check_range("--max-bad-records", max_bad_records, 0, None)
    check_range("--seed", seed, 0, None)
    with progress_bar("shuffling") as progress:
        packed = shuffle_records(
            _named(records), out, seed=seed, overwrite=overwrite, max_bad_records=max_bad_records, progress=progress
        )
    _tell_written(packed, out)


def unpack(
    records: _RecordsArgument,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to make.", show_default=False)],
    max_bad_records: _MaxBad = 100,
) -> None:
    """Write the pictures of a set as files, byte for byte, into one folder per identity."""
    from ostinato.recognition.data.packing import unpack_records

    check_range("--max-bad-records", max_bad_records, 0, None)
    with progress_bar("unpacking") as progress:
        packed = unpack_records(_named(records), folder, max_bad_records=max_bad_records, progress=progress)
    _tell_written(packed, folder)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _named(path: Path) -> Path:
    from ostinato.recognition.data.opening import find_record_file

    found = find_record_file(path) if path.exists() else path
    if found is None:
        raise DataSetError(f"{shown_name(path)} holds no train.rec.", advice="Name a .rec file.", path=os.fspath(path))
    return found


def _write_index(records: Path) -> None:
    from ostinato.data.recordio.index import index_path
    from ostinato.data.recordio.writer import write_index
    from ostinato.recognition.data.record_set import open_record_set

    found = open_record_set(records, use_index=False)
    found.file.close()
    where = index_path(records)
    if where.exists():
        number = next(n for n in range(1, 10_000) if not where.with_name(f"{where.name}.before-{n}").exists())
        kept = where.with_name(f"{where.name}.before-{number}")
        os.rename(where, kept)
        typer.echo(f"the old index is {shown_name(kept)} now")
    write_index(where, found.index)
    typer.echo(f"wrote {shown_name(where)}: {len(found.index):,} records")
    for damage in found.scan.damage:
        typer.echo(f"left out, damaged: bytes {damage.offset:,} to {damage.end:,}: {damage.reason}")


def _show(report: SetReport, decoded: bool) -> None:
    counts = sorted(report.counts.items(), key=lambda each: each[1])
    numbers = [count for _, count in counts]
    person = "folder" if report.kind == "folder of people" else "label"
    typer.echo(f"{shown_name(report.path)}: {report.kind}, {_size(report.bytes)}")
    typer.echo(f"  pictures    {report.images:,}")
    typer.echo(f"  identities  {len(counts):,}")
    if report.missing_labels:
        typer.echo(f"              {report.missing_labels:,} labels below the largest have no picture")
    if numbers[0] == numbers[-1]:
        typer.echo(f"  of each     {numbers[0]:,}")
    else:
        least, most = f"{numbers[0]:,} ({person} {counts[0][0]})", f"{numbers[-1]:,} ({person} {counts[-1][0]})"
        typer.echo(f"  of each     {least} to {most}; half of them have {numbers[len(numbers) // 2]:,} or more")
    for number, ((width, height), count) in enumerate(report.sizes.items()):
        if number == _SIZES_AT_MOST:
            typer.echo(f"              and {len(report.sizes) - number:,} other sizes")
            break
        typer.echo(f"  {'size' if not number else '':<10}  {width} x {height}: {count:,}")
    typer.echo(f"  format      {', '.join(f'{name}: {count:,}' for name, count in report.formats.items()) or 'none'}")
    if report.index:
        typer.echo(f"  index       {report.index}")
    checked = "every picture decoded" if decoded else "headers only; --decode reads the pixels too"
    typer.echo(f"  damaged     {len(report.bad):,} ({checked})")
    for error in report.bad[:_NAMED_AT_MOST]:
        typer.echo(f"    {error.what}")
    if len(report.bad) > _NAMED_AT_MOST:
        typer.echo(f"    and {len(report.bad) - _NAMED_AT_MOST:,} more")
    for note in report.notes:
        typer.echo(note)


def _described(format: PictureFormat, quality: int, size: int) -> str:
    how = "PNG" if format is PictureFormat.PNG else f"JPEG of quality {quality}"
    return f"{how}, {size} x {size}" if size else how


def _tell_written(packed: Packed, out: Path) -> None:
    if packed.skipped:
        typer.echo(f"damaged and left out: {len(packed.skipped):,}")
    what = f"{packed.images:,} pictures of {packed.identities:,} identities, {_size(packed.bytes)}"
    typer.echo(f"wrote {shown_name(out)}: {what}")


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    raise AssertionError("unreachable")
