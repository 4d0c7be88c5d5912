"""Ctrl-C and termination signals, turned into a request to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any

from ostinato.errors import StateError


class StopSignals:
    """While it is open, signals end the run in an orderly way.

    The first one asks the trainer to stop after the present iteration; everything is saved on the way out. A second
    SIGINT (Ctrl-C again) raises ``KeyboardInterrupt`` at once: the run is left without saving, and what was saved
    before is whole. Further other signals change nothing.

    The handler only makes a note: saving from within a signal handler may wait for a lock that the interrupted code
    holds. Open it in the main thread, where Python runs handlers. ::

        with StopSignals(trainer.request_stop) as signals:
            trainer.run()
        if signals.received is not None: ...

    :param request_stop: called with the reason ``"signal"``, once.
    :param signals: which ones are handled.
    """

    def __init__(
        self,
        request_stop: Callable[[str], Any],
        signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
    ) -> None:
        self._request_stop = request_stop
        self._signals = tuple(signals)
        self._before: dict[signal.Signals, Any] = {}
        self.received: signal.Signals | None = None
        """The first signal that came, ``None`` if none did."""

    def open(self) -> None:
        """Install the handlers.

        :raises StateError: when they are installed already.
        """
        if self._before:
            raise StateError("These signals are handled already.", advice="Open it once, and close it before.")
        for number in self._signals:
            self._before[number] = signal.signal(number, self._handle)

    def close(self) -> None:
        """Put back the handlers that were there before."""
        while self._before:
            number, before = self._before.popitem()
            # None stands for a handler that was not installed from Python and cannot be put back from here.
            signal.signal(number, signal.SIG_DFL if before is None else before)

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
            self._request_stop("signal")
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
