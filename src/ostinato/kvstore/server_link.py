"""A worker's way to its servers: requests, refusals, and waiting for the other workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ostinato.dist import Group
from ostinato.errors import ArgumentTypeError, ArgumentValueError, OstinatoError, StateError
from ostinato.kvstore.collective_calls import seat_in
from ostinato.kvstore.server_core import ServerCore
from ostinato.kvstore.server_desk import ServerDesk
from ostinato.kvstore.server_settings import settings_from
from ostinato.kvstore.transport import Message, ServerRefusedError, Transport
from ostinato.kvstore.transport_gloo import GlooTransport
from ostinato.kvstore.transport_in_process import InProcessTransport

_ERRORS: dict[str, type[OstinatoError]] = {
    kind.__name__: kind for kind in (ArgumentTypeError, ArgumentValueError, StateError)
}
"""Errors of a server that are raised here as what they are there."""


class ServerLink:
    """Asks servers, and finds them when it first does: those the environment names, or one in this process.

    :param transport: the way to the servers; ``None`` for the one that the environment names.
    :param group: the workers; ``None`` for those of this process.
    :param staleness: for a server in this process, see :class:`~ostinato.kvstore.server_core.ServerCore`.
    :raises ArgumentTypeError: the transport is none.
    :raises ArgumentValueError: the staleness is no number of pushes.
    """

    def __init__(self, transport: Any, group: Group | None, staleness: Any) -> None:
        if transport is not None and not callable(getattr(transport, "request", None)):
            raise ArgumentTypeError(
                f"The transport is {transport.__class__.__name__}, which takes no requests.",
                advice="Leave it out to take the one that the environment names.",
            )
        if staleness is not None and (isinstance(staleness, bool) or not isinstance(staleness, int) or staleness < 0):
            raise ArgumentValueError(
                f"The staleness bound is {staleness!r}.", advice="Give a whole number of pushes from 0 up, or None."
            )
        self._transport: Transport | None = transport
        self._group = group
        self._staleness = staleness
        self._barriers = 0
        self._is_closed = False

    @property
    def bytes_sent(self) -> int:
        """Bytes of this worker's messages so far."""
        return 0 if self._transport is None else self._transport.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Bytes of the servers' answers so far."""
        return 0 if self._transport is None else self._transport.bytes_received

    @property
    def servers(self) -> int:
        """How many servers there are."""
        return self._open().servers

    def ask(self, messages: Mapping[int, Message]) -> dict[int, Message]:
        """Send a message to each of these servers, and wait for the answers.

        :raises ArgumentTypeError: a server says so; likewise for ``ArgumentValueError`` and ``StateError``.
        :raises ServerRefusedError: a server has another objection.
        """
        answers = self._open().request(messages)
        for server, answer in answers.items():
            if "error" in answer:
                kind = _ERRORS.get(answer["kind"], ServerRefusedError)
                raise kind(answer["error"], advice=answer["advice"], server=server, kind=answer["kind"])
        return answers

    def ask_all(self, message: Message) -> dict[int, Message]:
        """Send the same message to all servers."""
        return self.ask(dict.fromkeys(range(self.servers), message))

    def barrier(self) -> None:
        """Wait for all workers that are not gone."""
        self._barriers += 1
        self.ask({0: {"call": "barrier", "number": self._barriers}})

    def close(self) -> None:
        """Tell the servers that this worker has finished. Nothing can be asked any more."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.close()

    def _open(self) -> Transport:
        if self._is_closed:
            raise StateError("The store was closed, and is used again.", advice="Make a new store.")
        if self._transport is None:
            rank, size = seat_in(self._group)
            settings = settings_from(os.environ)
            if settings is not None:
                self._transport = GlooTransport(settings.rendezvous, rank, settings.servers, settings.timeout)
            elif size == 1:
                self._transport = InProcessTransport([ServerDesk(ServerCore(1, staleness=self._staleness))])
            else:
                raise StateError(
                    f"An asynchronous store was opened by worker {rank} of {size}, and there are no servers.",
                    advice="Start the program with 'ostinato launch --servers N'.",
                )
        return self._transport
