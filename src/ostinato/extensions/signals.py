"""Ctrl-C and termination signals, turned into a request to stop."""

from __future__ import annotations

import logging
import math
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from types import FrameType, TracebackType
from typing import Any

from ostinato.errors import ArgumentTypeError, ArgumentValueError, StateError
from ostinato.extensions.stack_dump import StackDump

_log = logging.getLogger(__name__)

_SECONDS_FOR_LAST_WORDS = 5.0


class StopSignals:
    """While it is open, signals end the run in an orderly way.

    The first one asks the trainer to stop after the present iteration; everything is saved on the way out. A SIGINT
    after that (Ctrl-C, again or for the first time) raises ``KeyboardInterrupt`` at once: the run is left without
    saving, and what was saved before is whole. Further other signals change nothing.

    The handler only makes a note: saving from within a signal handler may wait for a lock that the interrupted code
    holds. Open it in the main thread, where Python runs handlers. ::

        with StopSignals(trainer.request_stop, grace=25) as signals:
            trainer.run()
        sys.exit(signals.exit_code)

    With several ranks every rank has its own. A signal to any of them ends the run on all in the same iteration: the
    next one in which they agree (``agree_every`` of the trainer). The grace has to last until then, and for the save.

    :param request_stop: called with the reason ``"signal"``, once.
    :param signals: which ones are handled.
    :param grace: seconds from the first signal to the end of the block. When they are over, the program is left at
        once, wherever it is, with the exit code of the signal. Choose it shorter than the time after which a cluster
        kills the job. ``None``: as long as it takes.
    :param saved: says in a sentence what is saved, for the line that is shown when the grace is over. Called in another
        thread than the trainer's.
    :param tell: shows that line; by default it is logged as critical.
    :param leave: ends the process with an exit code; by default without any further cleaning up, which might wait for
        the very thing that hangs.
    :raises ArgumentTypeError: when the grace is no number or a signal is none.
    :raises ArgumentValueError: when the grace is not above 0 and finite, or a signal cannot be handled.
    """

    def __init__(
        self,
        request_stop: Callable[[str], Any],
        signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
        *,
        grace: float | None = None,
        saved: Callable[[], str] = lambda: "What was saved before is whole.",
        tell: Callable[[str], Any] = _log.critical,
        leave: Callable[[int], Any] = os._exit,
    ) -> None:
        if not callable(request_stop):  # else the handler would fail, at the worst moment
            raise ArgumentTypeError(
                f"request_stop must be a function, not {request_stop!r}.",
                advice="Give trainer.request_stop.",
                value=request_stop,
            )
        self._request_stop = request_stop
        self._signals = tuple(_checked_signal(number) for number in _listed(signals))
        self._grace = _checked_grace(grace)
        self._saved = saved
        self._tell = tell
        self._leave = leave
        self._before: dict[signal.Signals, Any] = {}
        # Its put() is safe in a signal handler, whatever the interrupted code was doing with it.
        self._notes: queue.SimpleQueue[signal.Signals | None] = queue.SimpleQueue()
        self._watcher: threading.Thread | None = None
        self.received: signal.Signals | None = None
        """The first signal that came, ``None`` if none did."""

    @property
    def exit_code(self) -> int:
        """What the program should exit with: 128 plus the number of the signal; 0 if none came."""
        return 0 if self.received is None else 128 + self.received

    def open(self) -> None:
        """Install the handlers.

        :raises StateError: when they are installed already, a :class:`StackDump` has one of them, or this is not the
            main thread.
        """
        if self._before:
            raise StateError("These signals are handled already.", advice="Open it once, and close it before.")
        if threading.current_thread() is not threading.main_thread():
            raise StateError(
                "Signals can be handled in the main thread only, and this is another one.",
                advice="Open StopSignals in the main thread, or call trainer.request_stop() yourself.",
            )
        for number in self._signals:
            if isinstance(getattr(signal.getsignal(number), "__self__", None), StackDump):
                raise StateError(
                    f"{number.name} is handled already: it asks a StackDump for the stacks.",
                    advice="Give one of the two another signal, such as signal.SIGUSR2.",
                    signal=number,
                )
        self._notes = queue.SimpleQueue()
        if self._grace is not None:
            self._watcher = threading.Thread(
                target=self._watch, args=(self._notes, self._grace), name="ostinato-grace", daemon=True
            )
            self._watcher.start()  # now and not in the handler: starting a thread takes locks
        for number in self._signals:
            self._before[number] = signal.signal(number, self._handle)

    def close(self) -> None:
        """Put back the handlers that were there before."""
        while self._before:
            number, before = self._before.popitem()
            # None stands for a handler that was not installed from Python and cannot be put back from here.
            signal.signal(number, signal.SIG_DFL if before is None else before)
        if self._watcher is not None:
            self._notes.put(None)
            self._watcher.join()
            self._watcher = None

    def __enter__(self) -> StopSignals:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None
        if not again:
            self.received = signal.Signals(number)
            self._notes.put(self.received)
            self._request_stop("signal")
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    def _watch(self, notes: queue.SimpleQueue[signal.Signals | None], grace: float) -> None:
        """Wait for the first signal, then for the end of the block or of the grace."""
        number = notes.get()
        if number is None:
            return
        try:
            notes.get(timeout=grace)
        except queue.Empty:
            # In a thread of its own: who hangs may hold what the last words need.
            words = threading.Thread(target=self._say, args=(number, grace), daemon=True)
            words.start()
            words.join(_SECONDS_FOR_LAST_WORDS)
            self._leave(128 + number)

    def _say(self, number: signal.Signals, grace: float) -> None:
        self._tell(f"The run has not ended within {grace:g} seconds after {number.name}: leaving now. {self._saved()}")


def _listed(signals: Any) -> Sequence[Any]:
    if isinstance(signals, str) or not isinstance(signals, Iterable):
        signals = [signals]  # a lone one, or what the message then names
    return list(signals)


def _checked_signal(number: Any) -> signal.Signals:
    try:
        known = signal.Signals(number)
    except ValueError:
        raise ArgumentTypeError(
            f"{number!r} is no signal.", advice="Give members of signal.Signals, such as signal.SIGUSR1.", value=number
        ) from None
    if known in (signal.SIGKILL, signal.SIGSTOP):
        raise ArgumentValueError(
            f"{known.name} cannot be handled by any program.",
            advice="Let the cluster send SIGTERM or SIGUSR1 before it.",
            value=known,
        )
    return known


def _checked_grace(grace: Any) -> float | None:
    if grace is None:
        return None
    if isinstance(grace, bool) or not isinstance(grace, int | float):
        raise ArgumentTypeError(f"The grace must be a number of seconds or None, not {grace!r}.", value=grace)
    if not 0 < grace < math.inf:
        raise ArgumentValueError(
            f"The grace must be above 0 seconds and finite, not {grace!r}.",
            advice="None stands for as long as it takes.",
            value=grace,
        )
    return grace
