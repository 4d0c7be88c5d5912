"""``ostinato launch``: start the ranks of a training, on this machine or on several."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ostinato.dist.helper_processes import Helper
from ostinato.dist.hosts import Host, fill_hosts, find_this_host, parse_hosts, read_host_file
from ostinato.dist.launching import DEFAULT_PORT, FINAL_STATUSES, Job, LaunchError
from ostinato.dist.launching import launch as launch_job
from ostinato.errors import UsageError


def launch(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND...",
            help="The program of every rank, or a verb of ostinato; put -- before it. A plain python is this one.",
        ),
    ],
    ranks: Annotated[
        int | None,
        typer.Option(
            "-np", "--ranks", help="How many ranks. Left out: as many as the machines have slots.", show_default=False
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option("-H", "--hosts", help="Machines and how many ranks each takes: a:4,b:4.", show_default=False),
    ] = None,
    hostfile: Annotated[
        Path | None, typer.Option("--hostfile", help="The same as a host file of MPI.", show_default=False)
    ] = None,
    this_host: Annotated[
        str | None,
        typer.Option("--this-host", help="Which of the machines this is, if not by its name.", show_default=False),
    ] = None,
    servers: Annotated[
        int, typer.Option("--servers", help="How many servers of a dist_async store to start beside the ranks.")
    ] = 0,
    staleness: Annotated[
        int | None,
        typer.Option(
            "--staleness", help="How many pushes a rank may be ahead of the slowest. Left out: any.", show_default=False
        ),
    ] = None,
    max_restarts: Annotated[
        int, typer.Option("--max-restarts", help="How often to start all ranks again after one failed or was killed.")
    ] = 3,
    port: Annotated[
        int,
        typer.Option("--port", help="Where several machines meet, on the first of them; the servers take the next."),
    ] = 0,
) -> None:
    """Start a program once for each rank, with everything set that the ranks need to find one another.

    ostinato launch -np 2 -- python train.py --epochs 10

    ostinato launch -np 2 -- recognition train -d faces -m my_run

    When a rank fails or is killed, all ranks are started again: a program that saves and resumes goes on from its last
    save. Exit status 2 (wrong usage), 3 (bad input) or 4 (damaged run) ends the job, since the same would come again;
    the status of the launcher is that of the rank. On several machines, start the same command on each of them.
    """
    for name, value in (("--servers", servers), ("--max-restarts", max_restarts), ("--port", port)):
        if value < 0:
            raise UsageError(f"{name} is {value}, and cannot be below 0.")
    if hosts is not None and hostfile is not None:
        raise UsageError("The machines are given twice.", advice="Give -H or --hostfile.")
    if staleness is not None and (staleness < 0 or not servers):
        raise UsageError("--staleness is a number of at least 0, for servers.", advice="Give --servers too.")
    if hosts is not None:
        named = parse_hosts(hosts)
    elif hostfile is not None:
        named = read_host_file(hostfile)
    else:
        named = [Host("localhost", 1 if ranks is None else ranks)]
    slots = sum(host.slots for host in named)
    filled = fill_hosts(named, slots if ranks is None else ranks)
    here = find_this_host(filled, this_host)
    job = Job(_program(command), tuple(filled), here, port, max_restarts)
    # Kept to the end: workers and servers meet at this store.
    job, _store = _with_servers(job, servers, staleness) if servers else (job, None)
    try:
        launch_job(job)
    except LaunchError as error:
        if error.fields["status"] not in FINAL_STATUSES or job.command[0] == command[0]:
            raise
        raise typer.Exit(error.exit_code) from None  # a verb of ours has said in a sentence what is wrong


def _program(command: list[str]) -> tuple[str, ...]:
    """The program of every rank; a verb of this command line is run by the Python that runs this."""
    from ostinato.cli.main import VERBS

    return (sys.executable, "-m", "ostinato", *command) if command[0] in VERBS else tuple(command)


def _with_servers(job: Job, servers: int, staleness: int | None) -> tuple[Job, Any]:
    """Add the servers of an asynchronous store, and tell the ranks where they are met.

    :returns: the job, and the store where they meet if this is the first machine.
    """
    import torch.distributed as dist

    from ostinato.kvstore import server_settings

    alone = len(job.hosts) == 1
    host = "127.0.0.1" if alone else job.hosts[0].name
    port = 0 if alone else (job.port or DEFAULT_PORT) + 1
    store = None
    if job.this_host == 0:
        store = dist.TCPStore(host, port, is_master=True, wait_for_workers=False)
        port = store.port
    told = {
        server_settings.SERVERS: str(servers),
        server_settings.WORKERS: str(job.ranks),
        server_settings.RENDEZVOUS: f"{host}:{port}",
    }
    own = {} if staleness is None else {server_settings.STALENESS: str(staleness)}
    program = (sys.executable, "-m", "ostinato.kvstore.server_process")
    helpers = tuple(
        Helper(f"server {number}", program, {**told, **own, server_settings.SERVER: str(number)})
        for number in range(servers)
    )
    return replace(job, environment={**job.environment, **told}, helpers=helpers), store
