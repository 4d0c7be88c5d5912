"""Writing a record file and its index, complete or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from array import array
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ostinato.data.file_names import shown_name
from ostinato.data.recordio.chunks import encode_record
from ostinato.data.recordio.index import RecordIndex, index_path, render_index
from ostinato.errors import ArgumentValueError, StateError

_BUFFER = 1024 * 1024
_INDEX_PIECE = 1 << 20  # lines that are written at a time


class RecordWriter:
    """Writes records one after the other.

    They go to a file under a temporary name beside ``path``, with a leading dot. :meth:`commit` flushes it to the disk,
    writes the index, and gives both their names; whatever ends the program before leaves what was there before.

    As a context manager it commits at an orderly end and removes the temporary file after an error.

    Memory: 16 bytes a record.

    :param path: the ``.rec`` file; the index goes beside it with the ending ``.idx``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.index_path = index_path(self.path)
        self._temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.tmp")
        self._file: BinaryIO | None = None
        self._offset = 0
        self._keys, self._offsets = array("q"), array("q")

    def open(self) -> None:
        """Begin a new file.

        :raises OSError: the folder is not there or may not be written.
        """
        if self._file is not None:
            raise StateError(f"{shown_name(self.path)} is being written already.")
        self._file = open(self._temporary, "xb", buffering=_BUFFER)  # noqa: SIM115 (closed by commit and abort)
        self._offset = 0
        self._keys, self._offsets = array("q"), array("q")

    def write(self, key: int, payload: bytes) -> int:
        """Append a record.

        :param key: 0 or more; each may come once, in any order.
        :return: the byte at which the record begins.
        :raises ArgumentValueError: a negative key, or a record that is too long.
        """
        if key < 0:
            raise ArgumentValueError(f"The key is {key}.", advice="Keys are 0 or more.")
        data = encode_record(payload)
        begin = self._offset
        self._opened().write(data)
        self._keys.append(key)
        self._offsets.append(begin)
        self._offset += len(data)
        return begin

    def commit(self) -> RecordIndex:
        """Flush everything to the disk and give the files their names.

        An index that was there before goes first: a crash in between leaves the record file without an index, which is
        rebuilt by whoever opens it, and never with a wrong one.

        :raises ArgumentValueError: a key was written twice; nothing is left of the new files then.
        """
        file = self._opened()
        index = RecordIndex(np.array(self._keys, np.int64), np.array(self._offsets, np.int64))
        ordered = np.sort(index.keys)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(twice):
            self.abort()
            raise ArgumentValueError(f"The key {twice[0]} was written twice.", advice="Give every record its own key.")
        try:
            file.flush()
            os.fsync(file.fileno())
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.index_path)
            os.replace(self._temporary, self.path)
        finally:
            self.abort()  # closes the file, and removes it where it still has its temporary name
        write_index(self.index_path, index)
        return index

    def abort(self) -> None:
        """Remove what was written since :meth:`open`, unless it was committed. May be called more than once."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # a full disk refuses the last bytes, which nobody wants any more
                file.close()
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)

    def __enter__(self) -> RecordWriter:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._file is not None:
            self.commit()
        self.abort()

    def _opened(self) -> BinaryIO:
        if self._file is None:
            raise StateError(f"{shown_name(self.path)} is not being written.", advice="Call open() first.")
        return self._file


def write_index(path: str | os.PathLike[str], index: RecordIndex) -> None:
    """Write an index file, complete or not at all, and flush it and its folder to the disk.

    :raises OSError: the disk refuses.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            for first in range(0, len(index), _INDEX_PIECE):
                piece = slice(first, first + _INDEX_PIECE)
                file.write(render_index(RecordIndex(index.keys[piece], index.offsets[piece])))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot flush a folder
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
