"""The machines of a job, and how many ranks each takes: read, filled, and found again."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ostinato.errors import BadInputError, UsageError


@dataclass(frozen=True)
class Host:
    """A machine and how many ranks it takes."""

    name: str
    slots: int


def parse_hosts(text: str) -> list[Host]:
    """Read machines as Horovod writes them: ``a:4,b:2``; without a number, one rank.

    :raises UsageError: the text is of another form.
    """
    hosts = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([\w.\-]+)(?::(\d+))?\s*", part)
        if found is None or found[2] == "0":
            raise UsageError(
                f"{part.strip()!r} does not name a machine and its number of ranks.",
                advice="Write host:slots, several of them with commas: a:4,b:4.",
            )
        hosts.append(Host(found[1], int(found[2] or 1)))
    return hosts


def read_host_file(path: Path) -> list[Host]:
    """Read a host file of MPI: a machine a line, with ``slots=4`` or ``:4`` behind its name; ``#`` begins a comment.

    :raises BadInputError: the file cannot be read, or a line is of another form.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(
            f"The host file {path} cannot be read: {error}.",
            advice="Name a text file with one machine a line, or give the machines themselves with --hosts.",
            path=str(path),
        ) from error
    hosts = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        found = re.fullmatch(r"([\w.\-]+)(?::(\d+)|(?:\s+(?:max[-_]slots=\d+|slots\s*=\s*(\d+)))*)", text)
        if found is None or "0" in (found[2], found[3]):
            raise BadInputError(
                f"Line {number} of the host file {path} is {text!r}.",
                advice="Write a machine and its number of ranks: node1 slots=4.",
                path=str(path),
                line=number,
            )
        hosts.append(Host(found[1], int(found[2] or found[3] or 1)))
    if not hosts:
        raise BadInputError(
            f"The host file {path} names no machine.",
            advice="Write one machine a line: node1 slots=4.",
            path=str(path),
        )
    return hosts


def fill_hosts(hosts: Sequence[Host], ranks: int) -> list[Host]:
    """Share ranks out over machines, filling them one after the other; machines without ranks are left out.

    :raises UsageError: there are not enough slots.
    """
    slots = sum(host.slots for host in hosts)
    if not 1 <= ranks <= slots:
        raise UsageError(
            f"{ranks} ranks were asked for, and the machines have {slots} slots.",
            advice="Ask for at least one and at most as many as there are slots.",
        )
    filled, left = [], ranks
    for host in hosts:
        if left:
            filled.append(Host(host.name, min(host.slots, left)))
            left -= filled[-1].slots
    return filled


def find_this_host(hosts: Sequence[Host], name: str | None = None) -> int:
    """The position of this machine among them.

    :param name: what it is called there; by default its host name, whole or up to the first dot.
    :raises UsageError: it is not among them.
    """
    if name is None and len(hosts) == 1 and hosts[0].name in ("localhost", "127.0.0.1"):
        return 0
    here = name or socket.gethostname()
    for position, host in enumerate(hosts):
        if host.name == here or (name is None and host.name.partition(".")[0] == here.partition(".")[0]):
            return position
    raise UsageError(
        f"This machine is {here}, and the job runs on {', '.join(host.name for host in hosts)}.",
        advice="Start the same command on each of these machines; --this-host says which one this is, where its own "
        "name is another.",
    )
