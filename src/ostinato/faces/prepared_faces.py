"""The prepared faces of one side: from the cache where they are there, from the source files where not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from ostinato.errors import FaceFileError, OstinatoError
from ostinato.faces.crop_file import CropFile, file_identity
from ostinato.faces.sample import CropSettings, PreparedFace, prepare_face


class PreparedFaces:
    """Hands out the faces of one side by number. Thread-safe.

    Holds a path and 16 bytes a face.

    :param files: the face files of the side.
    :param settings: how they are cut and masked.
    """

    def __init__(self, files: Sequence[Path], settings: CropSettings) -> None:
        self.files = tuple(files)
        self._settings = settings
        self._identities: npt.NDArray[np.uint8] | None = None
        self._cache: CropFile | None = None

    def open(self, cache: CropFile | None) -> None:
        """Note the state of all files, and use ``cache`` (owned by the caller) from now on.

        :raises FaceFileError: a file is not there.
        """
        identities = np.empty((len(self.files), 16), dtype=np.uint8)
        for index, path in enumerate(self.files):
            identities[index] = np.frombuffer(_identity(path), dtype=np.uint8)
        self._identities = identities
        self._cache = cache

    def close(self) -> None:
        """Let go of the cache."""
        self._cache = None

    def load(self, index: int) -> PreparedFace:
        """The prepared face number ``index``; its arrays may be read-only.

        A face that is in the cache does not need its file any more: it is as it was when this object was opened.

        :raises FaceFileError: the file cannot be used, is gone, or was changed while training.
        """
        path = self.files[index]
        identity = b"" if self._identities is None else self._identities[index].tobytes()
        cache = self._cache
        if cache is not None and (face := cache.read(index, identity)) is not None:
            return face
        try:
            face = prepare_face(path, self._settings)
        except OstinatoError:
            raise
        except (OSError, ValueError, cv2.error) as error:
            raise _file_error(path, f"it cannot be read ({error})") from error
        if identity and _identity(path) != identity:
            raise _file_error(
                path,
                "it was changed while training used it",
                advice="Start the same command again; training continues with the file as it is then.",
            )
        if cache is not None:
            cache.write(index, identity, face)
        return face


def _identity(path: Path) -> bytes:
    try:
        return file_identity(path)
    except OSError as error:
        raise _file_error(
            path,
            f"it is not there any more, or cannot be reached ({error.strerror or error})",
            advice="Put it back, or start the same command again to train without it.",
        ) from error


def _file_error(path: str | os.PathLike[str], reason: str, *, advice: str = "") -> FaceFileError:
    return FaceFileError(
        f"{os.fspath(path)} cannot be used: {reason}.", advice=advice, path=os.fspath(path), reason=reason
    )
