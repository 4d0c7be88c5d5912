"""What a folder of faces holds, found out at the start: every header is read and tried, no pixels are decoded.

A folder may hold extracted faces (PNG with metadata) and plain square pictures that are already aligned. Sub-folders
are not entered. Files that the operating system leaves behind and hidden files are passed over and counted; broken
files are listed with their reasons, and it is for the caller to stop or to leave them out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ostinato.data.file_names import shown_name
from ostinato.data.jpeg import ImageError
from ostinato.errors import ArgumentValueError, FaceFileError, FaceFolderError
from ostinato.faces.alignment import AlignedFace
from ostinato.faces.face_files import face_file_error, file_ends, open_regular, read_open_header
from ostinato.faces.metadata import Centering, MetadataError
from ostinato.faces.pictures import picture_size
from ostinato.faces.png_chunks import PngError

PICTURE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})
"""Endings of files that are looked at, in any letter case."""

LEFT_BEHIND = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"})
"""Names of files that operating systems leave in folders, in lower case. Names with a leading dot come on top."""

MIN_SIDE = 16
MAX_SIDE = 4096
"""Pixels a side of the smallest and the largest face that is used."""


@dataclass(frozen=True, slots=True)
class FaceKind:
    """What faces of one making have in common; the files of a folder share a few of these."""

    centering: Centering | None
    """How the face image is cut; None for a plain picture."""
    landmarks: int
    """How many points are known: 68, 98, 4, or 0 for a plain picture."""
    masks: tuple[str, ...]
    """Names of the stored masks, sorted."""


@dataclass(frozen=True, slots=True)
class FaceFile:
    """One usable file of a folder; about 250 bytes with its name."""

    folder: Path
    name: str
    side: int
    """Pixels a side."""
    bytes: int
    mtime_ns: int
    kind: FaceKind
    ends: int = 0
    """What :func:`ostinato.faces.face_files.file_ends` found."""

    @property
    def path(self) -> Path:
        """Folder and name."""
        return self.folder / self.name

    @property
    def is_plain(self) -> bool:
        """Whether it is a plain picture: used as it is, without landmarks, masks or alignment."""
        return self.kind.centering is None


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file that looks like a picture and cannot be used, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class FolderScan:
    """What a folder holds. ``files`` are the usable ones and ``bad`` the others, both sorted by name."""

    folder: Path
    files: tuple[FaceFile, ...]
    bad: tuple[BadFile, ...] = ()
    left_behind: int = 0
    """Hidden files and files of the operating system, passed over."""
    others: int = 0
    """Files that are no pictures by their name, and sub-folders, passed over."""

    @property
    def plain(self) -> tuple[FaceFile, ...]:
        """The plain pictures among ``files``."""
        return tuple(file for file in self.files if file.is_plain)

    @property
    def paths(self) -> list[Path]:
        """The usable files' paths."""
        return [file.path for file in self.files]

    def notes(self) -> list[str]:
        """What a user should be told of this folder, one sentence each; empty when all is ordinary."""
        where = shown_name(self.folder)
        notes = []
        if self.plain:
            notes.append(
                f"Without face metadata: {count_files(len(self.plain))} of {len(self.files)} in {where} "
                f"({name_a_few(file.name for file in self.plain)}). Such pictures are used as they are, as if "
                "already aligned: masks, warping to landmarks and other crops are not available for them."
            )
        if self.left_behind:
            notes.append(f"{count_files(self.left_behind)} of the operating system in {where} are ignored.")
        if self.others:
            notes.append(f"{count_files(self.others)} or folders in {where} are no pictures and are ignored.")
        return notes


def scan_folder(folder: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> FolderScan:
    """Read the headers of all faces in a folder.

    :param progress: called as ``progress(done, total)`` now and then, and at the end.
    :raises FaceFolderError: the folder does not exist or cannot be read. Field: folder.
    """
    folder = Path(folder)
    names: list[str] = []
    bad: list[BadFile] = []
    left_behind = others = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _is_left_behind(entry.name):
                    left_behind += 1
                elif os.path.splitext(entry.name)[1].lower() not in PICTURE_SUFFIXES or _is_folder(entry):
                    others += 1
                else:
                    names.append(entry.name)
    except OSError as error:
        is_missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        raise FaceFolderError(
            f"The folder {shown_name(folder)} cannot be read: {error.strerror or error}.",
            advice="Give a folder of face pictures." if is_missing else "",
            folder=os.fspath(folder),
        ) from error
    names.sort()
    files: list[FaceFile] = []
    kinds: dict[FaceKind, FaceKind] = {}
    for done, name in enumerate(names):
        if progress and done % 256 == 0:
            progress(done, len(names))
        try:
            files.append(_scan_file(folder, name, kinds))
        except FaceFileError as error:
            bad.append(BadFile(name, error.fields["reason"]))
    if progress:
        progress(len(names), len(names))
    return FolderScan(folder, tuple(files), tuple(bad), left_behind, others)


def _is_left_behind(name: str) -> bool:
    return name.startswith(".") or name.lower() in LEFT_BEHIND


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links in a circle; opening the file will give the reason
        return False


def _scan_file(folder: Path, name: str, kinds: dict[FaceKind, FaceKind]) -> FaceFile:
    path = os.path.join(folder, name)
    try:
        with open_regular(path) as file:
            facts = os.fstat(file.fileno())
            size = picture_size(file)
            metadata = read_open_header(file)[1] if size.format == "PNG" else None
            ends = file_ends(file, facts.st_size)
        if metadata is not None:
            # Both would fail at the face's first use, perhaps hours from now.
            AlignedFace.of(metadata.landmarks)
            for mask in metadata.masks.values():
                mask.pixels()
    except (PngError, MetadataError, ImageError, ArgumentValueError) as error:
        raise face_file_error(path, str(error)) from None
    except OSError as error:
        raise face_file_error(path, f"it cannot be opened ({error.strerror or error})") from error
    if size.width != size.height:
        raise face_file_error(path, f"it is {size.width} x {size.height}; a face picture is square")
    if not MIN_SIDE <= size.width <= MAX_SIDE:
        raise face_file_error(path, f"it is {size.width} pixels wide; {MIN_SIDE} to {MAX_SIDE} are used")
    kind = FaceKind(None, 0, ())
    if metadata is not None:
        kind = FaceKind(metadata.centering, len(metadata.landmarks), tuple(sorted(metadata.masks)))
    kind = kinds.setdefault(kind, kind)
    return FaceFile(folder, name, size.width, facts.st_size, facts.st_mtime_ns, kind, ends)


def count_files(count: int) -> str:
    """``1 file``, ``2 files``."""
    return f"{count} file{'s' * (count != 1)}"


def name_a_few(names: Iterable[str]) -> str:
    """The first three names, readable, and dots where there are more."""
    return ", ".join(_first_names(names))


def _first_names(names: Iterable[str]) -> Iterator[str]:
    for count, name in enumerate(names):
        if count == 3:
            yield "..."
            return
        yield shown_name(name)
