"""What a worker and a server need of the wire between them, and the errors of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from ostinato.errors import OstinatoError

Message: TypeAlias = dict[str, Any]
"""A tree of plain values and tensors, see :mod:`ostinato.runs.tree`."""

Handler: TypeAlias = Callable[[int, Message], Message]
"""Answers the request of a worker: ``handler(worker, request)``. Called from several threads."""


class ServerLostError(OstinatoError, ConnectionError):
    """A server of the asynchronous store is gone, or does not answer in time. Fields: ``server``, ``error``."""


class ServerRefusedError(OstinatoError):
    """A server could not do what a worker asked for; the message is the server's. Fields: ``server``, ``kind``."""


class Transport(Protocol):
    """A worker's end: asks servers and waits for their answers."""

    @property
    def servers(self) -> int:
        """How many servers there are."""
        ...

    def request(self, messages: Mapping[int, Message]) -> dict[int, Message]:
        """Send one message to each of some servers, all of them at once, and give their answers by server.

        :raises ServerLostError: a server is gone, or did not answer within the time-out.
        """
        ...

    @property
    def bytes_sent(self) -> int:
        """Bytes of all messages sent so far."""
        ...

    @property
    def bytes_received(self) -> int:
        """Bytes of all answers received so far."""
        ...

    def close(self) -> None:
        """Tell the servers that this worker has finished, and let go of the connections. May be repeated."""
        ...
