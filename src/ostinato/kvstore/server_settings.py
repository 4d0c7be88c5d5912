"""What the environment says about the servers of an asynchronous store.

``OSTINATO_SERVERS``
    how many servers there are;
``OSTINATO_SERVER``
    the number of this server, from 0; only for servers;
``OSTINATO_WORKERS``
    how many workers there are;
``OSTINATO_SERVER_RENDEZVOUS``
    where workers and servers meet: ``host:port``, or the path of a file;
``OSTINATO_SERVER_TIMEOUT``
    seconds to wait for workers, and for an answer; 60 if left out;
``OSTINATO_STALENESS``
    how many pushes a worker may be ahead of the slowest; no bound if left out; only for servers.
"""

from __future__ import annotations

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
        number_from(environment, SERVERS),
        number_from(environment, WORKERS),
        environment[RENDEZVOUS],
        float(environment.get(TIMEOUT, DEFAULT_TIMEOUT)),
        None if staleness is None else number_from(environment, STALENESS),
    )


def number_from(environment: Mapping[str, str], name: str) -> int:
    """A variable that is a number of at least 0.

    :raises BadInputError: it is none.
    """
    text = environment.get(name, "")
    if not text.isdecimal():
        raise BadInputError(f"The environment variable {name} is {text!r}, which is no number.")
    return int(text)
