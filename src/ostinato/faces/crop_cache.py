"""The cache folder: which file of prepared faces belongs to which faces, and how much room they may take.

A face that was decoded, cut and masked once is kept, because nothing of that changes from pass to pass. The cache is
filled while training uses the faces, so the first iteration does not wait for it.

There is one file per list of faces and crop settings (see :mod:`ostinato.faces.crop_file`). Several processes may share
the folder. The folder stays within its bound: the least recently used files that no process has open are removed, and
faces that do not fit are prepared anew each time. A cache that is damaged is rebuilt; one that cannot be written is
only read. Nothing that happens to the cache stops training.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import cv2

from ostinato.faces.crop_file import (
    FORMAT_VERSION,
    SUFFIX,
    CropFile,
    create_crop_file,
    file_bytes,
    open_crop_file,
)
from ostinato.faces.sample import CropSettings

try:
    import fcntl
except ImportError:  # not a POSIX system: no locks, so files in use are not told apart
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)

PREPARATION_VERSION = 1
"""To be raised when the same source file and settings are to give other pixels than before."""

_LOCK_NAME = "crops.lock"
_STALE_PART_SECONDS = 3600.0


def cache_key(identities: Sequence[bytes], settings: CropSettings) -> bytes:
    """16 bytes for a list of face files and the settings of their crops.

    Faces that were moved, or are reached by another path, find their cache: the folder is not part of the identities.
    When a face is added, removed or changed it is another list, and its cache is built anew in the next pass. The
    other choice, one cache for all states of a folder, would have two copies of a folder overwrite each other's
    faces without end.
    """
    digest = hashlib.blake2b(digest_size=16)
    shape = {
        "format": FORMAT_VERSION,
        "preparation": PREPARATION_VERSION,
        "opencv": cv2.__version__,
        "settings": dataclasses.asdict(settings),
    }
    digest.update(json.dumps(shape, sort_keys=True).encode())
    for identity in identities:
        digest.update(identity)
    return digest.digest()


def open_crop_caches(
    folder: Path, sides: Sequence[Sequence[bytes]], settings: CropSettings, *, limit_bytes: int
) -> list[CropFile | None]:
    """Open or create the files for all sides of a run.

    :param folder: the cache folder; made if it does not exist.
    :param sides: for each side the identities of its face files (see :func:`ostinato.faces.crop_file.file_identity`),
        in order. A face's place is its record.
    :param limit_bytes: how much the cache folder may take in all. If the sides need more, each side keeps the same
        share of its faces.
    :return: one file per side; None where there is none and none can be made.
    """
    masks = len(settings.masks)
    keys = [cache_key(identities, settings) for identities in sides]
    wanted = {key: len(identities) for key, identities in zip(keys, sides, strict=True)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _warn_of_none(folder, error.strerror or str(error))
        return [None] * len(sides)
    opened: dict[bytes, CropFile | None] = {}
    with _folder_lock(folder) as may_change:
        if may_change:
            _remove_stale_parts(folder)
            _make_room(folder, 0, set(map(_path_name, keys)), limit_bytes)
        capacities = _capacities(folder, wanted, settings.size, masks, limit_bytes)
        for key, capacity in capacities.items():
            path = _path(folder, key)
            file = open_crop_file(path, size=settings.size, masks=masks, key=key)
            if file is not None and file.capacity != capacity and may_change and not _is_in_use(path):
                file.close()
                file = None
            if file is None and may_change and capacity > 0:
                file = _create(
                    folder, path, settings.size, masks, capacity, key, set(map(_path_name, keys)), limit_bytes
                )
            if file is not None:
                _mark_used(file)
            opened[key] = file
    if not may_change and None in opened.values():
        _warn_of_none(folder, "it cannot be written")
    return [opened[key] for key in keys]


def _create(
    folder: Path, path: Path, size: int, masks: int, capacity: int, key: bytes, own: set[str], limit_bytes: int
) -> CropFile | None:
    try:
        if path.exists():
            _log.info("The cache of prepared faces %s is damaged or has another size; it is built anew.", path)
            path.unlink()
        _make_room(folder, file_bytes(size, masks, capacity), own, limit_bytes)
        create_crop_file(path, size=size, masks=masks, capacity=capacity, key=key)
    except OSError as error:
        _warn_of_none(folder, error.strerror or str(error))
        return None
    return open_crop_file(path, size=size, masks=masks, key=key)


def _warn_of_none(folder: Path, reason: str) -> None:
    _log.warning(
        "No cache of prepared faces can be kept in %s (%s). Training goes on without it, more slowly.", folder, reason
    )


def _path_name(key: bytes) -> str:
    return key.hex() + SUFFIX


def _path(folder: Path, key: bytes) -> Path:
    return folder / _path_name(key)


def _capacities(folder: Path, wanted: dict[bytes, int], size: int, masks: int, limit_bytes: int) -> dict[bytes, int]:
    """How many faces of each list can be kept, after what other processes hold."""
    own = {_path_name(key) for key in wanted}
    held = sum(status.st_size for path, status in _files(folder) if path.name not in own and _is_in_use(path))
    room = max(0, limit_bytes - held)
    needed = sum(file_bytes(size, masks, count) for count in wanted.values())
    if needed <= room:
        return dict(wanted)
    # A file also has a header, and its parts are rounded up to pages, whatever it holds: less than three pages.
    share = max(0, room - 3 * 4096 * len(wanted)) / needed
    capacities = {key: int(count * share) for key, count in wanted.items()}
    _log.warning(
        "The prepared faces need %.1f GiB and the cache may take %.1f GiB: %d of %d faces are kept. A larger cache "
        "makes training faster if it waits for faces.",
        needed / 2**30,
        room / 2**30,
        sum(capacities.values()),
        sum(wanted.values()),
    )
    return capacities


def _make_room(folder: Path, needed: int, own: set[str], limit_bytes: int) -> None:
    """Remove the least recently used files of others until ``needed`` more bytes are within the limit."""
    files = sorted(_files(folder), key=lambda file: file[1].st_mtime_ns)
    total = sum(status.st_size for _, status in files)
    for path, status in files:
        if total + needed <= limit_bytes:
            return
        if path.name in own or _is_in_use(path):
            continue
        path.unlink(missing_ok=True)
        total -= status.st_size
        _log.info("Removed the cache of prepared faces %s, which was not used for the longest time.", path)


def _files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    found = []
    with contextlib.suppress(OSError):
        for path in folder.glob("*" + SUFFIX):
            with contextlib.suppress(OSError):
                found.append((path, path.stat()))
    return found


def _remove_stale_parts(folder: Path) -> None:
    # A process that was killed between creating a file and putting it in place leaves its part behind.
    with contextlib.suppress(OSError):
        for path in folder.glob("*" + SUFFIX + ".*.part"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE_PART_SECONDS:
                    path.unlink()


def _mark_used(file: CropFile) -> None:
    """Note the use for the order of removal, and hold the file so that no other process removes it."""
    with contextlib.suppress(OSError):
        os.utime(file.path)
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(file.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _is_in_use(path: Path) -> bool:
    """Whether any process has the file open for training. False where locks are not supported."""
    if fcntl is None:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    else:
        return False
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Generator[bool, None, None]:
    """Hold the folder against other processes that create or remove files; gives whether the folder can be changed."""
    try:
        descriptor = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        yield False
        return
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        # A read-only mount lets an existing lock file be opened on some systems; writing is what counts.
        yield os.access(folder, os.W_OK)
    finally:
        os.close(descriptor)
