"""The program of a server: ``python -m ostinato.kvstore.server_process``, as ``ostinato launch --servers N`` starts it.

It is told everything by environment variables:

``OSTINATO_SERVER``
    the number of this server, from 0;
``OSTINATO_SERVERS``
    how many servers there are;
``OSTINATO_WORKERS``
    how many workers there are;
``OSTINATO_SERVER_RENDEZVOUS``
    where workers and servers meet: ``host:port``, or the path of a file;
``OSTINATO_SERVER_TIMEOUT``
    seconds to wait for workers, and for an answer, 60 if left out;
``OSTINATO_STALENESS``
    how many pushes a worker may be ahead of the slowest; no bound if left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from ostinato.errors import BadInputError

SERVER = "OSTINATO_SERVER"
SERVERS = "OSTINATO_SERVERS"
WORKERS = "OSTINATO_WORKERS"
RENDEZVOUS = "OSTINATO_SERVER_RENDEZVOUS"
TIMEOUT = "OSTINATO_SERVER_TIMEOUT"
STALENESS = "OSTINATO_STALENESS"
DEFAULT_TIMEOUT = 60.0


@dataclass(frozen=True)
class ServerSettings:
    """What the environment says about servers."""

    servers: int
    workers: int
    rendezvous: str
    timeout: float = DEFAULT_TIMEOUT
    staleness: int | None = None


def settings_from(environment: Mapping[str, str]) -> ServerSettings | None:
    """Read the environment; ``None`` when it says nothing of servers.

    :raises BadInputError: it says only a part, or a number that is none.
    """
    if SERVERS not in environment:
        return None
    missing = [name for name in (WORKERS, RENDEZVOUS) if not environment.get(name)]
    if missing:
        raise BadInputError(
            f"{SERVERS} is set, and {' and '.join(missing)} is not.",
            advice="Start the program with 'ostinato launch --servers N', which sets them all.",
        )
    staleness = environment.get(STALENESS)
    return ServerSettings(
        _number(environment, SERVERS),
        _number(environment, WORKERS),
        environment[RENDEZVOUS],
        float(environment.get(TIMEOUT, DEFAULT_TIMEOUT)),
        None if staleness is None else _number(environment, STALENESS),
    )


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal():
        raise BadInputError(f"The environment variable {name} is {text!r}, which is no number.")
    return int(text)


def main() -> int:
    """Serve until all workers have finished; the exit status."""
    from ostinato.kvstore.server_core import ServerCore
    from ostinato.kvstore.server_desk import ServerDesk
    from ostinato.kvstore.transport_gloo import serve

    settings = settings_from(os.environ)
    if settings is None:
        raise BadInputError(f"{SERVERS} is not set.", advice="Start servers with 'ostinato launch --servers N'.")
    desk = ServerDesk(
        ServerCore(settings.workers, staleness=settings.staleness), patience=min(5.0, settings.timeout / 4)
    )
    return 0 if serve(desk, settings.rendezvous, _number(os.environ, SERVER), settings.timeout) else 1


if __name__ == "__main__":
    sys.exit(main())
