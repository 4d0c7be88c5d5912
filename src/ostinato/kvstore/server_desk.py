"""One server for several threads: requests are handled one at a time, and those that must wait do so here."""

from __future__ import annotations

import threading
import time

from ostinato.kvstore.server_core import WAIT, ServerCore
from ostinato.kvstore.transport import Message


class ServerDesk:
    """Lets threads, one for each worker, share a :class:`ServerCore`.

    No two requests are handled at the same time, so no two updates of a key overlap; reading, writing and decoding
    messages happens outside.

    :param core: what answers.
    :param patience: seconds that a request waits here at most before the worker is told to ask again.
    """

    def __init__(self, core: ServerCore, patience: float = 5.0) -> None:
        self.core = core
        self._patience = patience
        self._changed = threading.Condition()

    def answer(self, worker: int, request: Message) -> Message:
        """Answer a request; :data:`~ostinato.kvstore.server_core.WAIT` when it has waited long enough."""
        end = time.monotonic() + self._patience
        with self._changed:
            while True:
                answer = self.core.handle(worker, request)
                if answer is not WAIT:
                    self._changed.notify_all()
                    return answer
                left = end - time.monotonic()
                if left <= 0:
                    return WAIT
                self._changed.wait(left)

    def arrived(self, worker: int) -> None:
        """See :meth:`ServerCore.arrived`."""
        with self._changed:
            self.core.arrived(worker)
            self._changed.notify_all()

    def lost(self, worker: int) -> None:
        """See :meth:`ServerCore.lost`."""
        with self._changed:
            self.core.lost(worker)
            self._changed.notify_all()

    @property
    def has_finished(self) -> bool:
        """See :attr:`ServerCore.has_finished`."""
        with self._changed:
            return self.core.has_finished
