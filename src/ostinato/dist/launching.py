"""Starting the ranks of a job: torch.distributed.run with friendlier words, and helper processes beside it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ostinato.dist.helper_processes import Helper, helping
from ostinato.dist.hosts import Host
from ostinato.errors import BadInputError, DamagedRunError, OstinatoError, UsageError

DEFAULT_PORT = 29400
"""Where several machines meet, on the first one, unless another port is asked for."""

FINAL_STATUSES = frozenset({UsageError.exit_code, BadInputError.exit_code, DamagedRunError.exit_code})
"""Exit statuses after which ranks are not started again, since the same command would end in the same way: wrong usage,
bad input, a damaged run."""

_LOOK_EVERY = 0.2


class LaunchError(OstinatoError):
    """The ranks of a job did not all end well. Fields: ``rank``, ``status`` (negative: the signal that ended it)."""


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
    with _environment(values), helping(job.helpers if job.this_host == 0 else ()):
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
