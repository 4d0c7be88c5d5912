"""Starting the ranks of a job: torch.distributed.run with friendlier words, and helper processes beside it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ostinato.errors import BadInputError, DamagedRunError, OstinatoError, UsageError

DEFAULT_PORT = 29400
"""Where several machines meet, on the first one, unless another port is asked for."""

FINAL_STATUSES = frozenset({UsageError.exit_code, BadInputError.exit_code, DamagedRunError.exit_code})
"""Exit statuses after which ranks are not started again, since the same command would end in the same way: wrong usage,
bad input, a damaged run."""

_LOOK_EVERY = 0.2
_SECONDS_TO_END = 10.0


class LaunchError(OstinatoError):
    """The ranks of a job did not all end well. Fields: ``rank``, ``status`` (negative: the signal that ended it)."""


@dataclass(frozen=True)
class Host:
    """A machine and how many ranks it takes."""

    name: str
    slots: int


@dataclass(frozen=True)
class Helper:
    """A process beside the ranks, on the first machine. Started again when it fails, as long as the ranks run."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """What is to be started.

    :param command: the program of every rank, and its arguments.
    :param hosts: the machines with their ranks, in rank order; this one alone for a single machine.
    :param this_host: position of this machine among them.
    :param port: on the first machine, where the machines meet; 0 takes a free one, for a single machine.
    :param max_restarts: how often all ranks are started again after one of them failed, unless it ended with one of
        :data:`FINAL_STATUSES`.
    :param environment: more variables for every rank.
    :param helpers: see :class:`Helper`.
    """

    command: tuple[str, ...]
    hosts: tuple[Host, ...]
    this_host: int = 0
    port: int = 0
    max_restarts: int = 3
    environment: Mapping[str, str] = field(default_factory=dict)
    helpers: tuple[Helper, ...] = ()

    @property
    def ranks(self) -> int:
        """Ranks on all machines."""
        return sum(host.slots for host in self.hosts)


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


def free_port() -> int:
    """A port of this machine that nobody listens on right now."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def launch(job: Job) -> None:
    """Start this machine's ranks, wait for them, and start all ranks again when one fails, a number of times.

    On several machines the same job is launched on each of them. Signals go on to the ranks. Blocks; in the main
    thread.

    :raises LaunchError: a rank failed once too often, or with a status that is final (:data:`FINAL_STATUSES`), or its
        program cannot be started. Its exit status is that of the rank.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.rendezvous.api import RendezvousClosedError

    here = job.hosts[job.this_host]
    threads = str(max(1, (os.cpu_count() or 1) // here.slots))
    values = {
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads),
        # Restarted ranks meet at a new store. In the one they had, they would find the addresses of the dead.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        **job.environment,
    }
    with _environment(values), _helping(job.helpers if job.this_host == 0 else ()):
        try:
            failures = _run_ranks(job)
        except SignalException as error:
            if error.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            stopped = LaunchError(
                f"{_signal_name(error.sigval)} came, and the ranks were stopped.", rank=None, status=-error.sigval
            )
            stopped.exit_code = 128 + error.sigval
            raise stopped from None
        except RendezvousClosedError:
            raise LaunchError(
                "The ranks of this machine failed, and are not started again: another machine has ended the job.",
                advice="The output there says why.",
                rank=None,
                status=None,
            ) from None
        except FileNotFoundError as error:
            raise LaunchError(
                f"The program {job.command[0]!r} cannot be started: {error.strerror}.",
                advice="Is it installed, and spelt as you would type it?",
                rank=None,
                status=127,
            ) from error
    if failures:
        raise _failed(job, failures)


def _run_ranks(job: Job) -> Mapping[int, Any]:
    """Run them until the end. Returns what is known of those that failed, by rank; nothing if all ended well."""
    from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    class Agent(LocalElasticAgent):
        """Starts nothing again after a failure that would only come again."""

        def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
            result = super()._monitor_workers(worker_group)
            if any(failure.exitcode in FINAL_STATUSES for failure in result.failures.values()):
                self._remaining_restarts = 0
            return result

    machines, here = len(job.hosts), job.hosts[job.this_host]
    port = job.port or (free_port() if machines == 1 else DEFAULT_PORT)
    address = "127.0.0.1" if machines == 1 else here.name
    endpoint = f"{'127.0.0.1' if machines == 1 else job.hosts[0].name}:{port}"
    meeting = get_rendezvous_handler(
        RendezvousParameters("c10d", endpoint, f"ostinato_{port}", machines, machines, local_addr=address)
    )
    spec = WorkerSpec(
        role="default",
        local_world_size=here.slots,
        entrypoint=_program(job.command[0]),
        args=tuple(job.command[1:]),
        rdzv_handler=meeting,
        max_restarts=job.max_restarts,
        monitor_interval=_LOOK_EVERY,
        local_addr=address,
    )
    try:
        failures = Agent(spec, DefaultLogsSpecs()).run().failures
    except SignalException:
        raise  # this machine alone was told to stop; the others may go on and meet again
    except BaseException:
        meeting.shutdown()
        raise
    meeting.shutdown()
    return failures


def _program(word: str) -> str:
    """A plain ``python`` is the one that runs here: without its environment activated, the path names another one."""
    return sys.executable if word in ("python", "python3") else word


def _failed(job: Job, failures: Mapping[int, Any]) -> LaunchError:
    # One with a final status ended the job. Else the first one is the cause; the others were stopped because of it, by
    # SIGTERM, and often in the same second.
    rank, failure = min(
        failures.items(),
        key=lambda item: (
            item[1].exitcode not in FINAL_STATUSES,
            item[1].timestamp,
            item[1].exitcode == -signal.SIGTERM,
            item[0],
        ),
    )
    status = int(failure.exitcode)
    how = f"ended with status {status}" if status >= 0 else f"was ended by {_signal_name(-status)}"
    if not job.max_restarts:
        times = ""
    elif status in FINAL_STATUSES:
        times = ", which it would do again, so it is not started again"
    else:
        allowed = "restart that was" if job.max_restarts == 1 else f"{job.max_restarts} restarts that were"
        times = f", and the {allowed} allowed {'is' if job.max_restarts == 1 else 'are'} used up"
    error = LaunchError(
        f"Rank {rank} of {job.ranks} {how}{times}.",
        advice="Its own output above says more.",
        rank=rank,
        status=status,
    )
    error.exit_code = status if 0 < status < 126 else 1
    return error


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Generator[None]:
    """Children inherit these; they are taken back afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _helping(helpers: Sequence[Helper]) -> Generator[None]:
    """Keep helper processes running inside; give them a moment to end by themselves, then end them."""
    if not helpers:
        yield
        return
    over = threading.Event()
    running: list[subprocess.Popen[bytes]] = []

    def keep_running() -> None:
        while not over.wait(_LOOK_EVERY):
            for number, helper in enumerate(helpers):
                if running[number].poll() not in (None, 0) and not over.is_set():
                    running[number] = _start(helper)

    keeper = threading.Thread(target=keep_running, name="ostinato-helpers", daemon=True)
    ended_well = False
    try:
        for helper in helpers:
            running.append(_start(helper))
        keeper.start()
        yield
        ended_well = True
    finally:
        over.set()
        if keeper.is_alive():
            keeper.join()
        _end(running, patience=_SECONDS_TO_END if ended_well else 0.0)


def _end(processes: Sequence[subprocess.Popen[bytes]], patience: float) -> None:
    """Wait for processes to end by themselves, then ask them to, then make them."""
    for wait, and_then in ((patience, subprocess.Popen.terminate), (_SECONDS_TO_END, subprocess.Popen.kill)):
        end = time.monotonic() + wait
        for process in processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                and_then(process)
    for process in processes:
        process.wait()


def _start(helper: Helper) -> subprocess.Popen[bytes]:
    return subprocess.Popen(helper.command, env={**os.environ, **helper.environment})
