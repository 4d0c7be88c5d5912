"""Servers in the worker's own process: for one worker, and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ostinato.kvstore.server_core import WAIT
from ostinato.kvstore.server_desk import ServerDesk
from ostinato.kvstore.transport import Message
from ostinato.kvstore.transport_messages import decode, encode


class InProcessTransport:
    """Hands messages to servers in this process. They are packed and unpacked, so that nothing is shared.

    :param desks: the servers.
    :param worker: number of the worker whose end this is.
    """

    def __init__(self, desks: Sequence[ServerDesk], worker: int = 0) -> None:
        self._desks = list(desks)
        self._worker = worker
        self._is_open = True
        self.bytes_sent = 0
        self.bytes_received = 0

    @property
    def servers(self) -> int:
        """See :attr:`Transport.servers`."""
        return len(self._desks)

    def request(self, messages: Mapping[int, Message]) -> dict[int, Message]:
        """See :meth:`Transport.request`."""
        answers = {}
        for server, message in messages.items():
            sent = encode(message)
            self.bytes_sent += len(sent)
            while (answer := self._desks[server].answer(self._worker, decode(sent))) is WAIT:
                continue
            received = encode(answer)
            self.bytes_received += len(received)
            answers[server] = decode(received)
        return answers

    def close(self) -> None:
        """See :meth:`Transport.close`."""
        if self._is_open:
            self._is_open = False
            self.request({server: {"call": "bye"} for server in range(self.servers)})
