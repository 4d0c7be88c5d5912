"""One trainer at a time: the lock of a run folder.

The file ``lock`` says who trains; an advisory lock of the system on that file (flock) says whether it is still true.
The system drops that lock when its process dies, however it dies, so a dead process needs no clean-up. The text in the
file is for people, and for the one case in which the system's lock cannot be trusted: a file system shared between
machines.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import socket
import time
import weakref
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from ostinato.errors import RunLockedError

try:
    import fcntl
except ImportError:  # no POSIX
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)

LOCK_FILE = "lock"
_MAX_BYTES = 4096

_LOCAL_FILE_SYSTEMS = frozenset(
    (
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "overlay",
        "tmpfs",
        "zfs",
        "f2fs",
        "jfs",
        "bcachefs",
        "ramfs",
        "vfat",
        "exfat",
    )
)
"""File systems that one kernel alone can have mounted for writing, so that its own locks are the whole truth."""

_held: weakref.WeakSet[RunLock] = weakref.WeakSet()
_fork_watched = False


@dataclass(frozen=True)
class Holder:
    """Who holds, or held, a lock.

    :param boot: identity of the running kernel; empty where the system has none.
    :param process_start: start of the process in the kernel's ticks, to tell a reused number apart; 0 when unknown.
    """

    pid: int
    host: str
    since: str
    boot: str = ""
    process_start: int = 0

    @classmethod
    def this_process(cls) -> Holder:
        """The running process."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return cls(os.getpid(), socket.gethostname(), now, _boot_id(), _process_start(os.getpid()))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class RunLock:
    """The lock of one run folder. Nothing happens before :meth:`acquire`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / LOCK_FILE
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock, in this process."""
        return self._descriptor is not None

    def acquire(self) -> str:
        """Take the lock.

        :return: a sentence for the user when a lock of a dead process was taken over, else an empty text.
        :raises RunLockedError: somebody else trains in this folder, or may be.
        """
        if self._descriptor is not None:
            return ""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            trusted = self._lock(descriptor)
            before = _read_holder(descriptor)
            message = "" if before is None else self._take_over(before, trusted)
            text = json.dumps(vars(Holder.this_process())).encode() + b"\n"
            # In place, never by rename: the system's lock belongs to this very file. A full disk must not stop a run
            # from being opened, and the text is not what locks.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, text, 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _watch_forks()
        _held.add(self)
        return message

    def release(self) -> None:
        """Give the lock back; nothing happens when it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        _held.discard(self)
        if descriptor is None:
            return
        # Emptied and not removed: another process may have opened the file and be about to lock it.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)

    def _forget_in_child(self) -> None:
        # A loader worker made by fork must not keep the lock alive when the trainer is killed.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _lock(self, descriptor: int) -> bool:
        """Take the system's lock. False: this file system has none, so only the text can tell."""
        if fcntl is None:
            return False
        for wait in (0.05, 0.1, 0.0):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    _log.debug("no flock on %s: %s", self.path, error)
                    return False
                time.sleep(wait)  # somebody who only asks who trains here holds it for an instant
            else:
                return True
        raise self._refusal(_read_holder(descriptor))

    def _take_over(self, before: Holder, trusted: bool) -> str:
        mine = Holder.this_process()
        same_kernel = bool(before.boot) and before.boot == mine.boot
        if same_kernel or (not before.boot and before.host == mine.host):
            if trusted or not _is_alive(before):
                return f"The lock of {before} was left behind; that process has ended, so the lock was taken over."
            raise self._refusal(before)
        if before.host == mine.host:
            return f"The lock of {before} was left behind; this machine was started anew since, so it was taken over."
        if trusted and _is_on_local_disk(self.folder):
            return (
                f"The lock of {before} was left behind by another host name. The folder lies on a disk of this machine "
                f"and nobody here holds it, so the lock was taken over."
            )
        raise RunLockedError(
            f"The run folder {self.folder} is locked by {before}. This is another machine ({mine.host}), and from here "
            f"nobody can see whether that process still lives.",
            advice=f"If nothing trains there any more, remove {self.path} and start again.",
            folder=self.folder,
            pid=before.pid,
            host=before.host,
            since=before.since,
        )

    def _refusal(self, holder: Holder | None) -> RunLockedError:
        who = str(holder) if holder else "another process"
        advice = "Wait for it to end, stop it, or give this run another folder."
        if holder is not None and (holder.pid, holder.host) == (os.getpid(), Holder.this_process().host):
            who += ", which is this very one"
            advice = "Close it first. Two Snapshots in one trainer need a folder each (store=)."
        return RunLockedError(
            f"The run folder {self.folder} is in use by {who}.",
            advice=advice,
            folder=self.folder,
            pid=holder.pid if holder else None,
            host=holder.host if holder else None,
            since=holder.since if holder else None,
        )


def current_holder(folder: Path) -> Holder | None:
    """Who trains in a folder now, found out without taking the lock; None when nobody does."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    try:
        holder = _read_holder(descriptor)
        if fcntl is None:
            return holder if holder is not None and _is_alive(holder) else None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return holder or Holder(0, "this machine", "unknown")
            return holder if holder is not None and _is_alive(holder) else None
        return None
    finally:
        os.close(descriptor)


def _read_holder(descriptor: int) -> Holder | None:
    try:
        raw = json.loads(os.pread(descriptor, _MAX_BYTES, 0).decode())
        return Holder(int(raw["pid"]), str(raw["host"]), str(raw["since"]), str(raw["boot"]), int(raw["process_start"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _process_start(pid: int) -> int:
    try:
        # The name in parentheses may hold blanks and parentheses itself; the start is field 22, counted from 1.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _is_alive(holder: Holder) -> bool:
    if holder.pid <= 0:
        return False
    try:
        os.kill(holder.pid, 0)
    except (ProcessLookupError, OverflowError):  # a number that no process can have is that of none
        return False
    except OSError:
        pass  # it exists and belongs to somebody else
    started = _process_start(holder.pid)
    return not (started and holder.process_start and started != holder.process_start)


def _is_on_local_disk(folder: Path) -> bool:
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    target = str(folder.resolve())
    found, kind = "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split()[4].encode().decode("unicode_escape")
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(found):
            found, kind = mount, right.split()[0]
    return kind in _LOCAL_FILE_SYSTEMS


def _watch_forks() -> None:
    global _fork_watched
    if not _fork_watched and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget_all)
        _fork_watched = True


def _forget_all() -> None:
    for lock in list(_held):
        lock._forget_in_child()
    _held.clear()
