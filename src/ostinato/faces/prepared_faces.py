"""The prepared faces of one side: from the cache where they are there, from the source files where not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from ostinato.errors import ArgumentValueError, FaceFileError
from ostinato.faces.alignment import AlignedFace, to_68
from ostinato.faces.crop_file import CropFile, file_identity
from ostinato.faces.face_files import face_file_error, file_ends, open_regular, read_face_header
from ostinato.faces.png_chunks import PngError
from ostinato.faces.sample import CropSettings, PreparedFace, prepare_face
from ostinato.faces.scan import FolderScan


class PreparedFaces:
    """Hands out the faces of one side by number. Thread-safe.

    Holds 16 bytes a face beside the list it was given.

    :param side: a scanned folder, of which the usable files are used, or a list of files.
    :param settings: how they are cut and masked.
    """

    def __init__(self, side: FolderScan | Sequence[Path], settings: CropSettings) -> None:
        # A scan's files are small records; as paths they would take twice the room.
        self._scan = side if isinstance(side, FolderScan) else None
        self._paths = () if isinstance(side, FolderScan) else tuple(map(Path, side))
        self._settings = settings
        self._identities = b""
        self._cache: CropFile | None = None

    def __len__(self) -> int:
        return len(self._paths) if self._scan is None else len(self._scan.files)

    def path(self, index: int) -> Path:
        """The file of face number ``index``."""
        return self._paths[index] if self._scan is None else self._scan.files[index].path

    def identify(self) -> list[bytes]:
        """Note the state of all files (of a scan: as they were then), and give their identities in order.

        :raises FaceFileError: a file is not there.
        """
        if self._scan is None:
            identities = list(map(_identity, self._paths))
        else:
            identities = [file_identity(file.name, file.bytes, file.mtime_ns, file.ends) for file in self._scan.files]
        self._identities = b"".join(identities)
        return identities

    def use_cache(self, cache: CropFile | None) -> None:
        """Read from and write to ``cache``, which stays the caller's; None uses none."""
        self._cache = cache

    def load(self, index: int) -> PreparedFace:
        """The prepared face number ``index``; its arrays may be read-only.

        Call :meth:`identify` first. A face that is in the cache does not need its file any more: it is as it was then.

        :raises FaceFileError: the file cannot be used, is gone, or was changed while training.
        """
        identity = self._identities[16 * index : 16 * index + 16]
        cache = self._cache
        if cache is not None and (face := cache.read(index, identity)) is not None:
            return face
        path = self.path(index)
        try:
            face = prepare_face(path, self._settings)
        except cv2.error as error:
            raise face_file_error(path, f"its pixels cannot be processed ({error})") from error
        if _identity(path) != identity:
            raise face_file_error(
                path,
                "it was changed while training used it",
                advice="Start the same command again; training continues with the file as it is then.",
            )
        if cache is not None:
            cache.write(index, identity, face)
        return face

    def landmarks(self, index: int) -> npt.NDArray[np.float32]:
        """(68, 2): the landmarks of face number ``index`` in pixels of its crop; reads no pixels.

        :raises FaceFileError: it has none, or cannot be read.
        """
        path = self.path(index)
        metadata = None
        if path.suffix.lower() == ".png":
            metadata = read_face_header(path).metadata
        points = None if metadata is None else to_68(metadata.landmarks)
        if points is None:
            raise _no_landmarks(path)
        settings = self._settings
        try:
            return AlignedFace.of(points).crop_landmarks(
                settings.size, settings.centering, settings.coverage, settings.vertical_offset
            )
        except ArgumentValueError as error:
            raise face_file_error(path, str(error)) from error


def _identity(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            ends = file_ends(file, status.st_size)
    except PngError as error:
        raise face_file_error(path, str(error)) from None
    except OSError as error:
        raise face_file_error(
            path,
            f"it is not there any more, or cannot be reached ({error.strerror or error})",
            advice="Put it back, or start the same command again to train without it.",
        ) from error
    return file_identity(path.name, status.st_size, status.st_mtime_ns, ends)


def _no_landmarks(path: Path) -> FaceFileError:
    return face_file_error(
        path,
        "it carries no 68 landmarks, and warp to landmarks needs them",
        advice="Leave warp to landmarks off, or extract this face anew.",
    )
