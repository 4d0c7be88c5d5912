"""Shows on a signal what every thread of a training is doing."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import threading
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError

_log = logging.getLogger(__name__)


class StackDump:
    """While it is open, a signal writes the stacks of all threads to ``stacks_<rank>.txt``, and training goes on.

    For a training that seems to hang: ``kill -USR1 <pid>`` says where. The stacks are written from within the signal
    handler itself, so that they come even where Python cannot run because a thread waits in a collective operation for
    ever. As soon as Python runs again, a line with the time follows them, and a log line says where they are.

    One signal has one handler: neither this class nor :class:`~ostinato.extensions.StopSignals` can share one. A
    program that takes SIGUSR1 as a request to stop gives another signal here, such as ``signal.SIGUSR2``. Open it in
    the main thread. ::

        with StackDump(trainer.out / "logs", rank=group.rank):
            trainer.run()

    :param folder: where the file goes; made when missing.
    :param number: the signal; by default SIGUSR1.
    :param rank: number of this process, for the name of the file.
    :raises ArgumentTypeError: when ``number`` is no signal or ``rank`` no whole number.
    :raises ArgumentValueError: when the system has no such signal, or ``rank`` is below 0.
    """

    def __init__(self, folder: str | os.PathLike[str], number: signal.Signals | None = None, *, rank: int = 0) -> None:
        if isinstance(rank, bool) or not isinstance(rank, int):
            raise ArgumentTypeError(f"StackDump: rank must be a whole number, not {rank!r}.", value=rank)
        if rank < 0:
            raise ArgumentValueError(f"StackDump: rank must be 0 or more, not {rank}.", value=rank)
        self.number = _checked_signal(number)
        self.path = Path(folder) / f"stacks_{rank}.txt"
        """The file that the stacks are appended to."""
        self._descriptor: int | None = None
        self._before: Any = None

    def open(self) -> None:
        """Install the handler.

        :raises StateError: when it is installed already, the signal is handled by something else, this is not the main
            thread, or the system cannot do it (Windows).
        """
        if self._descriptor is not None:
            raise StateError("This StackDump is open already.", advice="Open it once, and close it before.")
        if self.number is None or not hasattr(faulthandler, "register"):
            raise StateError(
                "This system has no signal that could ask for the stacks.",
                advice="Use StackDump on Linux or macOS only.",
            )
        if threading.current_thread() is not threading.main_thread():
            raise StateError(
                "A signal can be handled in the main thread only, and this is another one.",
                advice="Open StackDump in the main thread.",
            )
        before = signal.getsignal(self.number)
        if before not in (signal.SIG_DFL, signal.SIG_IGN):
            owner = "other code than Python's" if before is None else getattr(before, "__qualname__", repr(before))
            raise StateError(
                f"{self.number.name} is handled already, by {owner}.",
                advice="Give StackDump another signal, such as signal.SIGUSR2, or take this one away from there.",
                signal=self.number,
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._before = before
        # First Python's handler, then the one that writes; that one calls on what it finds. It goes without Python, so
        # it works while Python waits; Python's comes when it can.
        signal.signal(self.number, self._note)
        faulthandler.register(self.number, file=self._descriptor, all_threads=True, chain=True)

    def close(self) -> None:
        """Put back what was there before; remove the file if nothing was written."""
        if self._descriptor is None or self.number is None:
            return
        faulthandler.unregister(self.number)
        signal.signal(self.number, self._before)
        is_empty = os.fstat(self._descriptor).st_size == 0
        os.close(self._descriptor)
        self._descriptor = None
        if is_empty:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def __enter__(self) -> StackDump:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._descriptor is None:
            return
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        with contextlib.suppress(OSError):
            os.write(self._descriptor, f"--- stacks of process {os.getpid()} written until {now} ---\n\n".encode())
        _log.warning(
            "%s: the stacks of all threads are in %s; training goes on.", signal.Signals(number).name, self.path
        )


def _checked_signal(number: Any) -> signal.Signals | None:
    if number is None:
        return getattr(signal, "SIGUSR1", None)
    if isinstance(number, bool) or not isinstance(number, int):
        raise ArgumentTypeError(
            f"StackDump: number must be a signal such as signal.SIGUSR2, not {number!r}.", value=number
        )
    try:
        return signal.Signals(number)
    except ValueError:
        raise ArgumentValueError(
            f"StackDump: this system has no signal {number}.", advice="Use signal.SIGUSR2, say.", value=number
        ) from None
