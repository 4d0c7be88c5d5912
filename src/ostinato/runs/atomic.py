"""Every file operation of a run folder, in one place.

Nothing else in this room opens a file for writing, renames, links or removes. That gives three things at once: each
write is flushed before anybody relies on it, each operation that another program disturbs for a moment is tried again,
and a test can stop or fail the program at every single operation.

The seam for tests is :func:`set_hook`: the hook is called as ``hook(moment, operation, path)`` with ``moment`` either
``"before"`` or ``"after"`` and ``operation`` one of :data:`OPERATIONS`. A hook that raises :class:`OSError` before an
operation stands for that operation failing; a hook that kills its own process stands for a power cut at that point.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

OPERATIONS = (
    "make_folder",
    "create",
    "write",
    "flush_file",
    "rename",
    "flush_folder",
    "link",
    "read_back",
    "remove",
    "remove_folder",
    "append",
)
"""The names that a hook sees."""

PASSING_ERRORS = frozenset(
    {errno.EPERM, errno.EACCES, errno.EBUSY, errno.ESTALE, errno.EAGAIN, errno.EINTR, errno.ETXTBSY}
)
"""Errors that another program (a sync client, a virus scanner, a file server) causes and that pass by themselves."""

PIECE_BYTES = 8 * 1024 * 1024
"""Files are written, hashed and read in pieces of this size, so that no second whole copy exists in memory."""


class FileHook(Protocol):
    """What :func:`set_hook` takes."""

    def __call__(self, moment: str, operation: str, path: Path) -> None: ...


_hook: FileHook | None = None


def set_hook(hook: FileHook | None) -> FileHook | None:
    """Let ``hook`` see every file operation of this process; None takes it away.

    :return: the hook that was set before.
    """
    global _hook
    before, _hook = _hook, hook
    return before


def _tell(moment: str, operation: str, path: Path) -> None:
    if _hook is not None:
        _hook(moment, operation, path)


@dataclass(frozen=True)
class FileRecord:
    """What a manifest keeps of one file.

    :param bytes: its size.
    :param sha256: its checksum in hexadecimal digits.
    """

    bytes: int
    sha256: str


class ChecksumMismatchError(Exception):
    """A file does not hold what its record says; the message says how it differs."""


@dataclass(frozen=True)
class Files:
    """File operations that flush, and that try again when a disturbance is likely to pass.

    :param attempts: how often an operation is tried before its error is raised.
    :param first_wait: seconds before the second try; each further wait is twice as long.
    """

    attempts: int = 6
    first_wait: float = 0.05

    def _try(self, operation: str, path: Path, call: Callable[[], _Result]) -> _Result:
        wait = self.first_wait
        for attempt in range(1, self.attempts + 1):
            try:
                _tell("before", operation, path)
                result = call()
                break
            except OSError as error:
                if error.errno not in PASSING_ERRORS or attempt == self.attempts:
                    raise
                self._tell_of_failure(operation, path, error, attempt)
                time.sleep(wait)
                wait *= 2
        else:  # attempts < 1 is a programming error
            raise ValueError(f"attempts must be at least 1, not {self.attempts}")
        _tell("after", operation, path)
        return result

    def _tell_of_failure(self, operation: str, path: Path, error: OSError, attempt: int) -> None:
        # One line is enough: what comes of the further tries is told by whoever catches the last error.
        level = logging.WARNING if attempt == 1 else logging.DEBUG
        what = operation.replace("_", " ")
        _log.log(level, "could not %s %s (%s); trying again", what, path, error.strerror or error)

    def make_folder(self, path: Path) -> None:
        """Make ``path`` and its parents; it may exist."""
        self._try("make_folder", path, lambda: path.mkdir(parents=True, exist_ok=True))

    def write(self, path: Path, pieces: Callable[[], Iterable[bytes | memoryview]]) -> FileRecord:
        """Write a file anew and flush it to the disk.

        ``path`` should be a temporary name: the file is open for writing until this returns. When a passing error
        strikes, the *whole* file is written again. Flushing again would not do: after a failed flush the system may
        take pages for clean that never reached the disk.

        :param pieces: called once for each try; gives the content.
        """
        wait = self.first_wait
        for attempt in range(1, self.attempts):
            try:
                return self._write_once(path, pieces)
            except OSError as error:
                if error.errno not in PASSING_ERRORS:
                    raise
                self._tell_of_failure("write", path, error, attempt)
                time.sleep(wait)
                wait *= 2
        return self._write_once(path, pieces)

    def _write_once(self, path: Path, pieces: Callable[[], Iterable[bytes | memoryview]]) -> FileRecord:
        digest = hashlib.sha256()
        size = 0
        _tell("before", "create", path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o644)
        try:
            _tell("after", "create", path)
            for piece in pieces():
                for part in _cut(piece):
                    _tell("before", "write", path)
                    rest = part
                    while len(rest):
                        rest = rest[os.write(descriptor, rest) :]
                    digest.update(part)
                    size += len(part)
                    _tell("after", "write", path)
            _tell("before", "flush_file", path)
            os.fsync(descriptor)
            _tell("after", "flush_file", path)
            if hasattr(os, "posix_fadvise"):
                # Reading back must come from the disk, not from the pages just written; and a state that is only read
                # after a crash should not push the training data out of memory.
                with contextlib.suppress(OSError):
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        return FileRecord(size, digest.hexdigest())

    def replace(self, path: Path, content: bytes | Callable[[], Iterable[bytes | memoryview]]) -> FileRecord:
        """Give ``path`` a new content in one step: a reader sees the old one or the new one, whole.

        The temporary file lies beside it and is named after it, with a leading dot.

        :param content: as a whole, or in pieces, see :meth:`write`.
        """
        temporary = path.with_name(f".tmp-{path.name}")
        record = self.write(temporary, content if callable(content) else lambda: [content])
        self.rename(temporary, path)
        self.flush_folder(path.parent)
        return record

    def rename(self, source: Path, target: Path) -> None:
        """Rename; a file at ``target`` is replaced, a folder must not exist there. Flush the parent afterwards."""
        self._try("rename", target, lambda: os.replace(source, target))

    def flush_folder(self, path: Path) -> None:
        """Make the names in a folder durable. File systems that cannot flush a folder are left alone."""
        if os.name == "nt":
            return

        def flush() -> None:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                    raise
            finally:
                os.close(descriptor)

        self._try("flush_folder", path, flush)

    def link_or_copy(self, source: Path, target: Path) -> None:
        """Give an unchanged file a second name; where the file system has no hard links it is copied and flushed."""
        try:
            _tell("before", "link", target)
            os.link(source, target)
            _tell("after", "link", target)
        except OSError as error:
            _log.debug("no hard link from %s to %s (%s); copying", source, target, error)
            self.write(target, lambda: read_pieces(source))

    def remove(self, path: Path) -> None:
        """Remove one file; one that is gone already is no error."""
        self._try("remove", path, lambda: path.unlink(missing_ok=True))

    def remove_tree(self, path: Path) -> None:
        """Remove a folder and what is in it. Symbolic links are removed, never followed."""
        with os.scandir(path) as entries:
            children = list(entries)
        for entry in children:
            child = path / entry.name
            if entry.is_dir(follow_symlinks=False):
                self.remove_tree(child)
            else:
                self.remove(child)
        self._try("remove_folder", path, path.rmdir)

    def append_line(self, path: Path, line: str) -> None:
        """Append one line and flush. A last line that a crash cut off is closed first, so that it spoils no other.

        Never through a symbolic link: a run folder from somewhere else must not write to any other file.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

        def append() -> None:
            descriptor = os.open(path, flags, 0o644)
            try:
                end = os.lseek(descriptor, 0, os.SEEK_END)
                joint = b""
                if end:
                    os.lseek(descriptor, end - 1, os.SEEK_SET)
                    joint = b"" if os.read(descriptor, 1) == b"\n" else b"\n"
                rest = joint + line.encode() + b"\n"
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

        self._try("append", path, append)

    def check(self, path: Path, record: FileRecord) -> None:
        """Read a file and compare it with its record.

        :raises ChecksumMismatchError: it is missing, has another size or another content.
        """
        self._try("read_back", path, lambda: check_file(path, record))


def _cut(piece: bytes | memoryview) -> Iterator[memoryview]:
    view = memoryview(piece).cast("B")
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]


def open_regular(path: Path) -> int:
    """Open a regular file for reading, never through a symbolic link, a device or a pipe.

    :return: a file descriptor, to be closed by the caller.
    :raises ChecksumMismatchError: it is missing or something else than a file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        raise ChecksumMismatchError("is missing") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ChecksumMismatchError("is a symbolic link, not a file") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ChecksumMismatchError("is not a regular file")
    return descriptor


def read_pieces(path: Path) -> Iterator[bytes]:
    """The content of a regular file, piece by piece."""
    descriptor = open_regular(path)
    try:
        while piece := os.read(descriptor, PIECE_BYTES):
            yield piece
    finally:
        os.close(descriptor)


def read_bounded(path: Path, limit: int) -> bytes:
    """A small file as a whole.

    :param limit: the largest size accepted, in bytes.
    :raises ChecksumMismatchError: missing, no regular file, or larger than ``limit``.
    """
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise ChecksumMismatchError(f"has {size:,} bytes, more than the {limit:,} allowed")
        content = bytearray()
        while len(content) <= limit and (piece := os.read(descriptor, limit + 1 - len(content))):
            content += piece
        if len(content) > limit:
            raise ChecksumMismatchError(f"has more than the {limit:,} bytes allowed")
        return bytes(content)
    finally:
        os.close(descriptor)


def check_file(path: Path, record: FileRecord) -> None:
    """Compare a file with its record, reading it piece by piece.

    :raises ChecksumMismatchError: the text says what is wrong with the file.
    """
    with CheckedReader(path, record) as reader:
        reader.finish()


class CheckedReader:
    """Reads a file once, front to back, and compares it with its record at the end.

    What was read is only to be trusted when :meth:`finish` has returned.

    :raises ChecksumMismatchError: the file is missing, no regular file, or of another size.
    """

    def __init__(self, path: Path, record: FileRecord) -> None:
        self._record = record
        self._digest = hashlib.sha256()
        self._left = record.bytes
        self._only_zeros = True
        self._file = io.FileIO(open_regular(path), "rb")
        size = os.fstat(self._file.fileno()).st_size
        if size != record.bytes:
            self._file.close()
            raise ChecksumMismatchError(f"has {size:,} bytes instead of {record.bytes:,}")

    def read_into(self, target: memoryview) -> None:
        """Fill ``target`` with the next bytes.

        :raises ChecksumMismatchError: the file ends before.
        """
        while len(target):
            got = self._file.readinto(target[:PIECE_BYTES])
            if got == 0 or got > self._left:
                raise ChecksumMismatchError("changed while it was read")
            self._digest.update(target[:got])
            # Asked only as long as everything was zero, so an intact file pays for its first bytes alone.
            self._only_zeros = self._only_zeros and not any(target[: min(got, 64)]) and not any(target[:got])
            self._left -= got
            target = target[got:]

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        content = bytearray(size)
        self.read_into(memoryview(content))
        return bytes(content)

    def skip(self, size: int) -> None:
        """Read the next ``size`` bytes for the comparison alone, in pieces."""
        buffer = memoryview(bytearray(min(PIECE_BYTES, size)))
        while size:
            piece = buffer[:size]
            self.read_into(piece)
            size -= len(piece)

    def finish(self) -> None:
        """Read what is left and compare.

        :raises ChecksumMismatchError: the content is another one than the record says.
        """
        self.skip(self._left)
        if self._digest.hexdigest() != self._record.sha256:
            if self._only_zeros and self._record.bytes:
                raise ChecksumMismatchError("holds only zero bytes")
            raise ChecksumMismatchError("has another content than was written (checksum)")

    def __enter__(self) -> CheckedReader:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._file.close()
