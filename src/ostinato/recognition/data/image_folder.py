"""Sets of pictures that lie in one folder per identity."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ostinato.data.file_names import shown_name
from ostinato.data.jpeg import ImageError
from ostinato.data.pictures import PICTURE_SUFFIXES, decode_rgb
from ostinato.errors import ArgumentValueError, DataSetError
from ostinato.faces.face_files import open_regular, read_whole
from ostinato.faces.png_chunks import PngError
from ostinato.faces.scan import LEFT_BEHIND, name_a_few
from ostinato.recognition.data.source import DEFAULT_MAX_BAD, BadImages


@dataclass(frozen=True)
class FolderIdentity:
    """One identity: its folder's name, and its pictures' paths relative to that folder, sorted."""

    name: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class FolderSet:
    """What a folder of people holds. The class of an identity is its place in ``identities``."""

    root: Path
    identities: tuple[FolderIdentity, ...]
    """Those with pictures, sorted by name."""
    empty: tuple[str, ...] = ()
    """Names of sub-folders without pictures; they get no class."""
    too_small: tuple[tuple[str, int], ...] = ()
    """Name and number of pictures of identities with fewer pictures than were asked for; they get no class."""
    left_behind: int = 0
    """Hidden files and files of the operating system, passed over."""
    others: int = 0
    """Files that are no pictures by their name or lie beside the sub-folders, and links in a circle, passed over."""

    @property
    def images(self) -> int:
        """The number of pictures."""
        return sum(len(identity.files) for identity in self.identities)

    def notes(self) -> list[str]:
        """What a user should be told of this folder, one sentence each; empty when all is ordinary."""
        where = shown_name(self.root)
        notes = []
        if self.empty:
            notes.append(
                f"{len(self.empty)} folder{'s' * (len(self.empty) != 1)} in {where} without pictures "
                f"({name_a_few(self.empty)}): ignored, and no class is counted for them."
            )
        if self.too_small:
            shown = ", ".join(f"{shown_name(name)}: {count}" for name, count in self.too_small[:3])
            dots = ", ..." if len(self.too_small) > 3 else ""
            notes.append(f"{len(self.too_small)} identities in {where} have too few pictures ({shown}{dots}): ignored.")
        if self.left_behind:
            notes.append(f"Hidden files and files of the operating system in {where}: {self.left_behind}, ignored.")
        if self.others:
            notes.append(f"Other files in {where} that are no pictures of an identity: {self.others}, ignored.")
        return notes


def scan_identities(
    root: str | os.PathLike[str], *, min_images: int = 1, progress: Callable[[int], None] | None = None
) -> FolderSet:
    """List the pictures of a folder with one sub-folder per identity. No picture is opened.

    Pictures may lie in folders inside an identity's folder. Links to folders are followed where they stand for an
    identity, and not below, so that a link in a circle ends nowhere.

    :param min_images: identities with fewer pictures are left out.
    :param progress: called with the number of pictures found so far, after each identity.
    :raises DataSetError: the folder cannot be read, or holds no identity with enough pictures. Field: ``path``.
    """
    if min_images < 1:
        raise ArgumentValueError(f"min_images is {min_images}.", advice="Use 1 or more.")
    root = Path(root)
    left_behind = others = loose = 0
    names: list[str] = []
    whole = os.path.realpath(root)
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                if _is_left_behind(entry.name):
                    left_behind += 1
                elif _is_folder(entry) and not _is_circle(entry, whole):
                    names.append(entry.name)
                else:
                    others += 1
                    loose += _is_picture(entry.name)
    except OSError as error:
        raise DataSetError(
            f"The folder {shown_name(root)} cannot be read: {error.strerror or error}.",
            advice="Give a folder with one sub-folder of pictures per identity.",
            path=os.fspath(root),
        ) from error
    identities: list[FolderIdentity] = []
    empty: list[str] = []
    too_small: list[tuple[str, int]] = []
    found = 0
    for name in sorted(names):
        files: list[str] = []
        for file in _walk(root / name):
            base = os.path.basename(file)
            if _is_left_behind(base):
                left_behind += 1
            elif _is_picture(base):
                files.append(file)
            else:
                others += 1
        if not files:
            empty.append(name)
        elif len(files) < min_images:
            too_small.append((name, len(files)))
        else:
            identities.append(FolderIdentity(name, tuple(sorted(files))))
            found += len(files)
        if progress is not None:
            progress(found)
    if not identities:
        raise _no_identity(root, empty, too_small, loose, min_images)
    return FolderSet(root, tuple(identities), tuple(empty), tuple(too_small), left_behind, others)


def read_picture_file(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a picture file.

    :raises DataSetError: it is no ordinary file, is too large, or cannot be read. Fields: ``path``, ``reason``.
    """
    try:
        with open_regular(path) as file:
            return read_whole(file)
    except PngError as error:  # what these two raise for files of any kind
        raise picture_error(path, str(error)) from None
    except OSError as error:
        raise picture_error(path, f"it cannot be read ({error.strerror or error})") from error


def picture_error(path: str | os.PathLike[str], reason: str) -> DataSetError:
    """The error that names a picture file and says why it cannot be used."""
    return DataSetError(f"{shown_name(path)} cannot be used: {reason}.", path=os.fspath(path), reason=reason)


class FolderSource:
    """The pictures of a :class:`FolderSet` with labels; see :class:`~ostinato.recognition.data.source.Source`.

    Pictures are numbered identity by identity. Memory: the paths, about 120 bytes a picture.

    :param found: what :func:`scan_identities` found.
    :param max_bad_records: damaged pictures that are skipped.
    """

    def __init__(self, found: FolderSet, *, max_bad_records: int = DEFAULT_MAX_BAD) -> None:
        self.found = found
        self.classes = len(found.identities)
        counts = [len(identity.files) for identity in found.identities]
        self.labels: npt.NDArray[np.int64] = np.repeat(np.arange(self.classes, dtype=np.int64), counts)
        self.bad = BadImages(max_bad_records)
        self._files = [file for identity in found.identities for file in identity.files]

    def __len__(self) -> int:
        return len(self._files)

    def path(self, index: int) -> Path:
        """The file of a picture."""
        return self.found.root / self.found.identities[int(self.labels[index])].name / self._files[index]

    def read(self, index: int) -> tuple[npt.NDArray[np.uint8], int]:
        """See :meth:`Source.read`."""
        path = self.path(index)
        data = read_picture_file(path)
        try:
            return decode_rgb(data), int(self.labels[index])
        except ImageError as error:
            raise picture_error(path, str(error)) from None

    def place(self, index: int) -> str:
        """See :meth:`Source.place`."""
        return shown_name(self.path(index))

    def close(self) -> None:
        """Nothing stays open."""


def _is_left_behind(name: str) -> bool:
    return name.startswith(".") or name.lower() in LEFT_BEHIND


def _is_picture(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in PICTURE_SUFFIXES


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _is_circle(entry: os.DirEntry[str], root: str) -> bool:
    """Whether a link leads to the set itself, or to a folder around it: everybody would be one identity."""
    if not entry.is_symlink():
        return False
    target = os.path.realpath(entry.path)
    return os.path.commonpath([target, root]) == target


def _walk(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _is_left_behind(name)]
        inside = os.path.relpath(place, folder)
        for name in names:
            yield name if inside == "." else os.path.join(inside, name)


def _no_identity(
    root: Path, empty: list[str], too_small: list[tuple[str, int]], loose: int, min_images: int
) -> DataSetError:
    where = shown_name(root)
    if too_small:
        name, count = max(too_small, key=lambda each: each[1])
        what = f"No identity in {where} has {min_images} pictures; the largest, {shown_name(name)}, has {count}."
        advice = "Give more pictures of each, or ask for fewer."
    elif empty:
        what = f"The folders in {where} hold no pictures ({name_a_few(empty)})."
        advice = f"Understood are {', '.join(sorted(PICTURE_SUFFIXES))}."
    elif loose:
        what = f"{where} holds {loose} pictures side by side and no sub-folders, so nobody can tell who is who."
        advice = "Put the pictures of each identity into a sub-folder of its own."
    else:
        what = f"{where} holds no sub-folders."
        advice = "Give a folder with one sub-folder of pictures per identity."
    return DataSetError(what, advice=advice, path=os.fspath(root))
