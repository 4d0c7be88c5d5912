"""One file of prepared faces: fixed-size records that several processes read and fill at the same time.

Layout (little-endian)::

    0      64 bytes   header: magic, version, side, number of masks, capacity, key, checksum
    4096   32 bytes   per record: identity of the source file, checksum of the record, state, checksum of these
    ...    records, each a multiple of 64 bytes: image (S, S, 3), masks (m, S, S), landmarks (68, 2) float32

The file is created with its full length, mostly a hole, and filled face by face. A record is written first and its
entry in the index second; a reader accepts it only if the entry is whole, names the same source file and has the
record's checksum. So a process that dies while it writes, or a disk that lost a page, leaves a record that is not used
and is written again. Two processes that prepare the same face write the same bytes.

Reading goes through a read-only mapping. The file is opened for writing only by a process that has something to write.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
import secrets
import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ostinato.faces.sample import PreparedFace

_log = logging.getLogger(__name__)

FORMAT_VERSION = 1
SUFFIX = ".crops"

_MAGIC = b"OSTCROPS"
_HEADER = struct.Struct("<8sIIIIQ16s")
_HEADER_BYTES = 4096
_ENTRY = struct.Struct("<16sIII4x")
_READY = 1
_HAS_LANDMARKS = 2
_LANDMARK_BYTES = 68 * 2 * 4


def file_identity(name: str, size: int, mtime_ns: int, ends: int = 0) -> bytes:
    """16 bytes that change when a face file is replaced or written: a digest of what is known of it.

    :param name: without the folder, so that faces keep their identity when the folder is moved.
    :param size: bytes.
    :param mtime_ns: modification time in nanoseconds.
    :param ends: what :func:`ostinato.faces.face_files.file_ends` says of the content; 0 when it was not looked at.
    """
    text = f"{name}\0{size}\0{mtime_ns}\0{ends}"
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).digest()


class CropFile:
    """An open file of prepared faces. Thread-safe.

    :param path: where it is.
    :param descriptor: the file, open for reading; the object owns it.
    :param size: side of the faces in pixels.
    :param masks: masks per face.
    :param capacity: how many records there are.
    """

    def __init__(self, path: Path, descriptor: int, *, size: int, masks: int, capacity: int) -> None:
        self.path = path
        self.capacity = capacity
        self.descriptor = descriptor
        self._writer: int | None = None
        self._may_write = True
        self._usable = True
        self._lock = threading.Lock()
        self._size = size
        self._masks = masks
        self._record_bytes = record_bytes(size, masks)
        self._first_record = _first_record(capacity)
        self._file_bytes = file_bytes(size, masks, capacity)
        self._verified = bytearray(capacity * _ENTRY.size)  # the entries whose records were found whole
        try:
            self._map: mmap.mmap | None = mmap.mmap(descriptor, self._file_bytes, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            # A limit on address space, or a file system that cannot map: reads then copy.
            self._map = None

    def read(self, slot: int, identity: bytes) -> PreparedFace | None:
        """The prepared face in a record, if it is there, whole, and made from that very source file.

        The arrays may be views of the mapping: read-only. They stay valid after :meth:`close`. The axes of
        ``masks`` are (S, S, m) as always; in memory the masks lie one after the other.
        """
        if slot >= self.capacity or not self._usable or not self._is_whole():
            return None
        try:
            # Looked at each time: another process may have replaced the record of a file that was changed.
            place = slot * _ENTRY.size
            entry = bytes(self._bytes(_HEADER_BYTES + place, _ENTRY.size))
            found, record_checksum, state, entry_checksum = _ENTRY.unpack(entry)
            if not state & _READY or found != identity:
                return None
            record = self._bytes(self._first_record + slot * self._record_bytes, self._record_bytes)
        except OSError as error:
            self._give_up("read", error)
            return None
        if self._verified[place : place + _ENTRY.size] != entry:
            if zlib.crc32(entry[:24]) != entry_checksum or zlib.crc32(record) != record_checksum:
                return None
            self._verified[place : place + _ENTRY.size] = entry
        side = self._size
        pixels = side * side
        data = np.frombuffer(record, dtype=np.uint8)
        landmarks = None
        if state & _HAS_LANDMARKS:
            start = pixels * (3 + self._masks)
            landmarks = data[start : start + _LANDMARK_BYTES].view(np.float32).reshape(68, 2)
        return PreparedFace(
            image=data[: 3 * pixels].reshape(side, side, 3),
            masks=data[3 * pixels : (3 + self._masks) * pixels].reshape(self._masks, side, side).transpose(1, 2, 0),
            landmarks=landmarks,
        )

    def write(self, slot: int, identity: bytes, face: PreparedFace) -> None:
        """Keep a prepared face. A file that cannot be written (read-only, full disk) is simply not written any more."""
        if slot >= self.capacity or not self._may_write:
            return
        record = bytearray(self._record_bytes)
        data = np.frombuffer(record, dtype=np.uint8)
        pixels = self._size * self._size
        data[: 3 * pixels].reshape(self._size, self._size, 3)[:] = face.image
        data[3 * pixels : (3 + self._masks) * pixels].reshape(self._masks, self._size, self._size)[:] = (
            face.masks.transpose(2, 0, 1)
        )
        state = _READY
        if face.landmarks is not None and face.landmarks.shape == (68, 2):
            state |= _HAS_LANDMARKS
            start = pixels * (3 + self._masks)
            data[start : start + _LANDMARK_BYTES] = (
                np.ascontiguousarray(face.landmarks, "<f4").reshape(-1).view(np.uint8)
            )
        entry = bytearray(_ENTRY.pack(identity, zlib.crc32(record), state, 0))
        entry[24:28] = struct.pack("<I", zlib.crc32(entry[:24]))
        try:
            writer = self._open_writer()
            # The order is what makes a half-written record harmless, and a replaced one unused while it changes.
            _write_all(writer, bytes(_ENTRY.size), _HEADER_BYTES + slot * _ENTRY.size)
            _write_all(writer, record, self._first_record + slot * self._record_bytes)
            _write_all(writer, entry, _HEADER_BYTES + slot * _ENTRY.size)
        except OSError as error:
            self._give_up("written", error)

    def close(self) -> None:
        """Close the file. Faces that were read stay valid, and keep the mapping alive."""
        with self._lock:
            self._usable = self._may_write = False
            if self._writer is not None:
                os.close(self._writer)
                self._writer = None
            if self.descriptor >= 0:
                os.close(self.descriptor)
                self.descriptor = -1
            # Dropped, not closed: arrays that still look at the mapping keep it alive, and the last one frees it.
            self._map = None

    def _is_whole(self) -> bool:
        # A file cut short under us would end the process on the first look at a page that is gone.
        if os.fstat(self.descriptor).st_size >= self._file_bytes:
            return True
        self._give_up("read", OSError("it was cut short"))
        return False

    def _bytes(self, start: int, length: int) -> Any:
        if self._map is not None:
            return memoryview(self._map)[start : start + length]
        data = os.pread(self.descriptor, length, start)
        if len(data) != length:
            raise OSError("it was cut short")
        return data

    def _open_writer(self) -> int:
        with self._lock:
            if self._writer is None:
                self._writer = os.open(self.path, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0))
                if not os.path.samestat(os.fstat(self._writer), os.fstat(self.descriptor)):
                    raise OSError("another file has taken its place")
            return self._writer

    def _give_up(self, action: str, error: OSError) -> None:
        with self._lock:
            already = not self._may_write
            self._may_write = False
            if action == "read":
                already = not self._usable
                self._usable = False
        if not already:
            _log.warning(
                "The cache of prepared faces %s cannot be %s any more (%s). Training goes on without that; faces that "
                "are not in the cache are prepared anew each time, which is slower.",
                self.path,
                action,
                error.strerror or error,
            )


def open_crop_file(path: Path, *, size: int, masks: int, key: bytes) -> CropFile | None:
    """Open an existing file, read-only.

    :param key: 16 bytes that the file must carry.
    :return: None if there is none, or it is damaged or of another kind.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    try:
        header = os.pread(descriptor, _HEADER.size + 4, 0)
        if len(header) == _HEADER.size + 4 and zlib.crc32(header[:-4]) == int.from_bytes(header[-4:], "little"):
            magic, version, found_size, found_masks, _, capacity, found_key = _HEADER.unpack(header[:-4])
            expected = (_MAGIC, FORMAT_VERSION, size, masks, key)
            if (magic, version, found_size, found_masks, found_key) == expected and os.fstat(
                descriptor
            ).st_size == file_bytes(size, masks, capacity):
                return CropFile(path, descriptor, size=size, masks=masks, capacity=capacity)
    except OSError:
        pass
    os.close(descriptor)
    return None


def create_crop_file(path: Path, *, size: int, masks: int, capacity: int, key: bytes) -> None:
    """Put an empty file in place, whole from the first moment it can be seen.

    :raises OSError: the folder cannot be written.
    """
    header = _HEADER.pack(_MAGIC, FORMAT_VERSION, size, masks, 0, capacity, key)
    building = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    descriptor = os.open(building, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        _write_all(descriptor, header + struct.pack("<I", zlib.crc32(header)), 0)
        os.ftruncate(descriptor, file_bytes(size, masks, capacity))
        os.replace(building, path)
    except BaseException:
        building.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def record_bytes(size: int, masks: int) -> int:
    """Bytes of one face's record."""
    return _round_up(size * size * (3 + masks) + _LANDMARK_BYTES, 64)


def file_bytes(size: int, masks: int, capacity: int) -> int:
    """Bytes of a file with that many records."""
    return _first_record(capacity) + capacity * record_bytes(size, masks)


def _first_record(capacity: int) -> int:
    return _round_up(_HEADER_BYTES + capacity * _ENTRY.size, 4096)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _write_all(descriptor: int, data: bytes | bytearray, offset: int) -> None:
    written = os.pwrite(descriptor, data, offset)
    if written != len(data):
        raise OSError("the disk is full")
