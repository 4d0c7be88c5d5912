"""Messages between workers and servers over gloo, point to point.

Each worker and each server share a process group of two, made for them alone: when one of them dies, its partner's
calls fail and nobody else's do. The groups have nothing to do with those of the workers' collectives.

They meet at a store of torch.distributed: ``host:port`` of a TCP store, or a file that all of them see.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ostinato.errors import BadInputError, StateError
from ostinato.kvstore.server_desk import ServerDesk
from ostinato.kvstore.transport import Message, ServerLostError
from ostinato.kvstore.transport_messages import decode, encode

_FOREVER = timedelta(days=365)
_LOOK_EVERY = 0.05
_LARGEST = 1 << 40
"""Bytes of a message that is believed; more is a sign of two versions that do not understand each other."""


def open_rendezvous(place: str, timeout: float) -> Any:
    """Give the store where workers and servers meet.

    :param place: ``host:port``, or the path of a file in a folder that exists.
    :param timeout: seconds.
    :raises BadInputError: nothing can be met there.
    """
    limit = timedelta(seconds=timeout)
    host, colon, port = place.rpartition(":")
    try:
        if colon and port.isdecimal():
            return dist.TCPStore(host, int(port), is_master=False, timeout=limit)
        if not Path(place).absolute().parent.is_dir():
            raise RuntimeError(f"there is no folder {Path(place).absolute().parent}")
        store = dist.FileStore(str(Path(place).absolute()), -1)
        store.set_timeout(limit)
        return store
    except (RuntimeError, ValueError, OSError) as error:
        raise BadInputError(
            f"Workers and servers were to meet at {place!r}: {str(error).splitlines()[0]}.",
            advice="Start workers and servers together, with 'ostinato launch --servers N'.",
            place=place,
        ) from error


class _Line:
    """A process group of two, as a line on which either end sends whole messages."""

    def __init__(self, store: Any, name: str, end: int, timeout: timedelta) -> None:
        prefixed = dist.PrefixStore(f"ostinato/line/{name}", store)
        self._group: Any = dist.ProcessGroupGloo(prefixed, end, 2, timeout)  # its stubs name no methods
        self._other = 1 - end

    def send(self, data: Tensor) -> None:
        self._group.send([torch.tensor([len(data)])], self._other, 0).wait()
        self._group.send([data], self._other, 0).wait()

    def receive(self) -> Tensor:
        length = torch.empty(1, dtype=torch.int64)
        self._group.recv([length], self._other, 0).wait()
        size = int(length)
        if not 0 < size <= _LARGEST:
            raise BadInputError(f"A message of {size} bytes was announced, which cannot be.")
        data = torch.empty(size, dtype=torch.uint8)
        self._group.recv([data], self._other, 0).wait()
        return data


class GlooTransport:
    """A worker's end; see :class:`~ostinato.kvstore.transport.Transport`. Connects when it is made.

    :param place: where to meet, see :func:`open_rendezvous`.
    :param worker: number of this worker, from 0.
    :param servers: how many servers there are.
    :param timeout: seconds after which a server that does not answer is given up.
    :raises ServerLostError: a server did not come in time.
    """

    def __init__(self, place: str, worker: int, servers: int, timeout: float) -> None:
        if servers < 1:
            raise StateError(
                "An asynchronous store was opened by several workers, and there are no servers.",
                advice="Start the program with 'ostinato launch --servers N'.",
            )
        self._timeout = timeout
        self._lines: dict[int, _Line] = {}
        self.bytes_sent = 0
        self.bytes_received = 0
        store = open_rendezvous(place, timeout)
        for server in range(servers):
            with self._losing(server):
                visit = store.add(f"ostinato/visits/{server}/{worker}", 1)
                name = f"{server}/{worker}/{visit}"
                self._lines[server] = _Line(store, name, 0, timedelta(seconds=timeout))

    @property
    def servers(self) -> int:
        """See :attr:`Transport.servers`."""
        return len(self._lines)

    def request(self, messages: Mapping[int, Message]) -> dict[int, Message]:
        """See :meth:`Transport.request`."""
        asked = {server: encode(message) for server, message in messages.items()}
        answers: dict[int, Message] = {}
        while asked:
            for server, data in asked.items():
                with self._losing(server):
                    self._lines[server].send(data)
                self.bytes_sent += len(data)
            for server in list(asked):
                with self._losing(server):
                    data = self._lines[server].receive()
                self.bytes_received += len(data)
                answer = decode(data)
                if not answer.get("wait"):
                    answers[server] = answer
                    del asked[server]
        return {server: answers[server] for server in messages}

    @contextlib.contextmanager
    def _losing(self, server: int) -> Any:
        try:
            yield
        except RuntimeError as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            silent = "timed out" in str(error).lower() or "timeout" in str(error).lower()
            what = f"did not answer within {self._timeout:g} seconds" if silent else "is gone"
            raise ServerLostError(
                f"Server {server} of the asynchronous store {what}.",
                advice="What it held is lost. Look at its log, start the job again, load the weights of the last save "
                "and give the store its optimizer states with load_states().",
                server=server,
                error=said,
            ) from error

    def close(self) -> None:
        """See :meth:`Transport.close`."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            with contextlib.suppress(RuntimeError):
                line.send(encode({"call": "bye"}))
                line.receive()


def serve(desk: ServerDesk, place: str, server: int, timeout: float) -> bool:
    """Answer workers until all of them have finished. One thread for each worker.

    A worker that dies is dropped and the others are served on; it may come back.

    :param place: where to meet, see :func:`open_rendezvous`.
    :param server: number of this server, from 0.
    :param timeout: seconds to wait for workers, at the start and when all of them were lost.
    :returns: True when all workers have said that they have finished; False when those that had not were lost.
    """
    store = open_rendezvous(place, timeout)
    visits = [0] * desk.core.workers
    finished: set[int] = set()
    threads: list[threading.Thread] = []
    last_seen = time.monotonic()
    while len(finished) < desk.core.workers:
        for worker in range(desk.core.workers):
            visit = store.add(f"ostinato/visits/{server}/{worker}", 0)
            if visit > visits[worker]:
                visits[worker] = visit
                finished.discard(worker)
                desk.arrived(worker)
                # Its own client: a store's calls wait for one another.
                line_store = open_rendezvous(place, timeout)
                name = f"{server}/{worker}/{visit}"
                thread = threading.Thread(
                    target=_serve_worker, args=(desk, line_store, name, worker, finished), daemon=True
                )
                thread.start()
                threads.append(thread)
        threads = [thread for thread in threads if thread.is_alive()]
        if threads:
            last_seen = time.monotonic()
        elif finished and desk.has_finished:
            return False  # those that are lost were not called back, as a launcher would have before the others end
        elif time.monotonic() - last_seen > timeout:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def _serve_worker(desk: ServerDesk, store: Any, name: str, worker: int, finished: set[int]) -> None:
    try:
        line = _Line(store, name, 1, _FOREVER)
        while True:
            request = decode(line.receive())
            answer = desk.answer(worker, request)
            line.send(encode(answer))
            if request.get("call") == "bye":
                finished.add(worker)
                return
    except (RuntimeError, BadInputError):
        desk.lost(worker)  # it died, or does not speak our language; the others are served on
