"""Extracted-face PNG files: reading the header cheaply, reading all, writing, and updating in place."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ostinato.data.file_names import shown_name
from ostinato.errors import ArgumentValueError, FaceFileError
from ostinato.faces.metadata import FaceMetadata, MetadataError, parse_metadata, render_metadata
from ostinato.faces.png_chunks import (
    END,
    PngChunk,
    PngError,
    PngHeader,
    international_text,
    parse_header,
    read_chunk,
    walk_chunks,
)
from ostinato.faces.png_encoding import encode_png

KEYWORD = b"faceswap"
MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Bytes of the metadata chunk; see :data:`ostinato.faces.literal.MAX_TEXT_LENGTH`."""

MAX_FILE_BYTES = 2**30
"""Larger files are not read; the largest picture that is decoded has half of it, without compression and with alpha."""

_FIRST_BYTES = 16 * 1024
_LAST_BYTES = 4 * 1024


@dataclass(frozen=True)
class FaceHeader:
    """What is known of a face file without its pixels: the PNG header and the metadata (None: it carries none)."""

    path: Path
    png: PngHeader
    metadata: FaceMetadata | None


def face_file_error(path: str | os.PathLike[str], reason: str, *, advice: str = "") -> FaceFileError:
    """The error that names a face file and says why it cannot be used; the reason may be a sentence of its own."""
    reason = reason.removesuffix(".")
    return FaceFileError(
        f"{shown_name(path)} cannot be used: {reason}.", advice=advice, path=os.fspath(path), reason=reason
    )


def read_face_header(path: str | os.PathLike[str]) -> FaceHeader:
    """The header of a face PNG; only what stands before the pixels is read, and whether the file ends as a PNG ends.

    :raises FaceFileError: not a PNG, cut off, or with a metadata chunk that cannot be used. Fields: path, reason.
    """
    try:
        with open_regular(path) as file:
            png, metadata = read_open_header(file)
    except (PngError, MetadataError) as error:
        raise face_file_error(path, str(error)) from None
    except OSError as error:
        raise face_file_error(path, f"it cannot be opened ({error.strerror or error})") from error
    return FaceHeader(Path(path), png, metadata)


def read_face_bytes(path: str | os.PathLike[str]) -> tuple[bytes, FaceHeader]:
    """The whole file and its header; for callers that go on to decode the pixels.

    :raises FaceFileError: as :func:`read_face_header`.
    """
    try:
        with open_regular(path) as file:
            png, metadata = read_open_header(file)
            data = read_whole(file)
    except (PngError, MetadataError) as error:
        raise face_file_error(path, str(error)) from None
    except OSError as error:
        raise face_file_error(path, f"it cannot be read ({error.strerror or error})") from error
    return data, FaceHeader(Path(path), png, metadata)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """An ordinary file opened for reading bytes; never waits.

    :raises PngError: a folder, a pipe, a device.
    :raises OSError: it cannot be opened.
    """
    # A pipe or a device by a picture's name would block for ever; O_NONBLOCK keeps the open itself from waiting.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PngError("it is not an ordinary file")
    return open(descriptor, "rb")


def read_whole(file: BinaryIO) -> bytes:
    """All bytes of an open file.

    :raises PngError: it has more than :data:`MAX_FILE_BYTES`.
    """
    size = os.fstat(file.fileno()).st_size
    if size > MAX_FILE_BYTES:
        raise PngError(f"it has {size:,} bytes; at most {MAX_FILE_BYTES:,} are read")
    file.seek(0)
    return file.read(size)  # and not the largest size allowed: Python sets aside what is asked for


def file_ends(file: BinaryIO, size: int) -> int:
    """64 bits that stand for the content of an open picture: a digest of its beginning and its end.

    The beginning of a face holds its size, landmarks and masks, and its end the checksum of all its pixels. The rest
    is not read: that would mean to read every file whole at every start.

    :param size: bytes of the file.
    """
    file.seek(0)
    digest = hashlib.blake2b(file.read(_FIRST_BYTES), digest_size=8)
    file.seek(max(0, size - _LAST_BYTES))
    digest.update(file.read(_LAST_BYTES))
    return int.from_bytes(digest.digest(), "little")


def read_open_header(file: BinaryIO) -> tuple[PngHeader, FaceMetadata | None]:
    """What an open file says before its pixels; also makes sure that the file has an end.

    :raises PngError: not a PNG, or cut off.
    :raises MetadataError: it has metadata that cannot be used.
    """
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise PngError("it is empty")
    header: PngHeader | None = None
    metadata: FaceMetadata | None = None
    for chunk in walk_chunks(file, size):
        if chunk.type == b"IHDR":
            header = parse_header(read_chunk(file, chunk))
        elif metadata is None and _is_face_text(file, chunk):
            metadata = _parse_chunk(file, chunk)
        elif chunk.type == b"IDAT":
            break
    assert header is not None  # the walker lets no other first chunk through
    file.seek(size - len(END))
    if file.read(len(END)) != END:
        # Something may follow the picture and be harmless; a picture that was cut off has no end anywhere.
        for _ in walk_chunks(file, size):
            pass
    return header, metadata


def _is_face_text(file: BinaryIO, chunk: PngChunk) -> bool:
    if chunk.type != b"iTXt" or chunk.length < len(KEYWORD) + 5:
        return False
    file.seek(chunk.data_start)
    return file.read(len(KEYWORD) + 1) == KEYWORD + b"\x00"


def _parse_chunk(file: BinaryIO, chunk: PngChunk) -> FaceMetadata:
    if chunk.length > MAX_TEXT_BYTES:
        raise MetadataError(f"its metadata has {chunk.length:,} bytes; at most {MAX_TEXT_BYTES:,} are read")
    data = read_chunk(file, chunk)[len(KEYWORD) + 1 :]
    if data[:1] != b"\x00":
        raise MetadataError("its metadata is compressed, which no writer of this format does")
    try:
        text = data[4:].decode("utf-8")
    except UnicodeDecodeError as error:
        raise MetadataError(f"its metadata is not UTF-8 (byte {error.start})") from None
    return parse_metadata(text)


# --- writing ---------------------------------------------------------------------------------------------------------


def write_face(
    path: str | os.PathLike[str],
    image: NDArray[np.uint8],
    metadata: FaceMetadata | None,
    *,
    chunks: Sequence[bytes] = (),
    compression: int = 3,
) -> None:
    """Write a face as PNG, complete or not at all.

    :param image: (N, N, 3) uint8, RGB, values as they are to be stored.
    :param metadata: goes into the ``faceswap`` chunk; None writes a plain picture.
    :param chunks: further whole chunks (see :mod:`ostinato.faces.png_chunks`), put before the metadata.
    :param compression: zlib level 0 to 9 of the pixels.
    :raises FaceFileError: the metadata cannot be written (a landmark that is not finite); nothing is written then.
    :raises OSError: the disk refuses, or the picture cannot be encoded.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.shape[0] != image.shape[1] or image.dtype != np.uint8:
        raise ArgumentValueError(f"a face to write is (N, N, 3) uint8; this one is {image.shape} {image.dtype}.")
    texts = list(chunks)
    if metadata is not None:
        texts.append(_face_chunk(path, metadata))
    _replace(Path(path), encode_png(image, chunks=texts, compression=compression), sync=False)


def update_face(path: str | os.PathLike[str], metadata: FaceMetadata) -> None:
    """Replace the metadata of an existing face; pixels and all other chunks stay byte for byte.

    The new chunk takes the place of the old one, or stands before the pixels where there was none. The file is replaced
    atomically and only after the new one is on the disk.

    :raises FaceFileError: the file is not a whole PNG, or the metadata cannot be written. The file is then unchanged.
    """
    new = _face_chunk(path, metadata)
    pieces: list[bytes] = []
    placed = False
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            pieces.append(file.read(8))
            for chunk in walk_chunks(file, size):
                is_face_text = _is_face_text(file, chunk)
                if not placed and (is_face_text or chunk.type == b"IDAT"):
                    pieces.append(new)
                    placed = True
                if not is_face_text:
                    file.seek(chunk.start)
                    pieces.append(file.read(chunk.end - chunk.start))
            pieces.append(file.read())  # what stands after IEND is not ours to drop
    except PngError as error:
        raise face_file_error(path, str(error)) from None
    except OSError as error:
        raise face_file_error(path, f"it cannot be read ({error.strerror or error})") from error
    if not placed:
        raise face_file_error(path, "it holds no pixels (no IDAT chunk)")
    _replace(Path(path), b"".join(pieces), sync=True)


def _face_chunk(path: str | os.PathLike[str], metadata: FaceMetadata) -> bytes:
    try:
        return international_text(KEYWORD.decode(), render_metadata(metadata))
    except MetadataError as error:
        raise face_file_error(path, f"its metadata cannot be written: {error}") from None


def _replace(path: Path, data: bytes, *, sync: bool) -> None:
    # The temporary file must lie in the same folder for the rename to be atomic; its leading dot keeps scans off it.
    # It is opened by hand, not by tempfile, so that a new file gets the rights that the user's umask gives any file.
    target = Path(os.path.realpath(path))
    temporary = target.parent / f".ostinato-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            with contextlib.suppress(OSError):
                os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if sync:
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
