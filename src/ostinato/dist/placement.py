"""Which rank this process is, told from what its launcher has put into the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ostinato.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of one process among those of its job."""

    rank: int
    """From 0 to ``size - 1``."""
    size: int
    """Number of processes."""
    local_rank: int
    """Number among the processes of this machine."""
    launcher: str = "caller"
    """Who said so, as users call it."""
    address: str | None = None
    """``host:port`` at which rank 0 is met; ``None`` where the launcher does not say."""

    def __post_init__(self) -> None:
        problems = []
        if self.size < 1:
            problems.append(f"the number of ranks is {self.size}")
        elif not 0 <= self.rank < self.size:
            problems.append(f"rank {self.rank} is not one of 0 to {self.size - 1}")
        if not 0 <= self.local_rank < max(self.size, 1):
            problems.append(f"local rank {self.local_rank} is not one of 0 to {self.size - 1}")
        if problems:
            raise BadInputError(
                f"The place of this process does not fit ({self.launcher}): {'; '.join(problems)}.",
                advice="Start all ranks with one launcher, and set none of its variables by hand.",
                rank=self.rank,
                size=self.size,
                local_rank=self.local_rank,
            )


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The variables of one launcher. It counts as the one in charge when ``rank`` is set."""

    name: str
    rank: str
    size: str
    local_rank: str
    start: str
    """How its users start a job of two."""


# In this order: torchrun may be started by one of the others, and mpirun inside a SLURM job.
_LAUNCHERS = (
    _Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "torchrun --nproc-per-node 2 train.py"),
    _Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "mpirun -np 2 -x MASTER_ADDR -x MASTER_PORT python train.py",
    ),
    _Launcher("SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "srun -n 2 python train.py"),
)


def detect_placement(environ: Mapping[str, str] | None = None) -> Placement | None:
    """The place that torchrun, Open MPI or SLURM has given this process; ``None`` when none of them started it.

    ``MASTER_ADDR`` and ``MASTER_PORT`` say where rank 0 is met. SLURM jobs can do without: the first machine of the
    job step and a port made from the job's number stand in for them.

    :param environ: the variables; by default those of this process.
    :raises BadInputError: when a launcher's variables are there only in part, or make no sense together.
    """
    environ = os.environ if environ is None else environ
    for launcher in _LAUNCHERS:
        if launcher.rank in environ or (launcher.name == "torchrun" and launcher.size in environ):
            break
    else:
        return None
    names = (launcher.rank, launcher.size, launcher.local_rank)
    missing = [name for name in names if name not in environ]
    if missing:
        present = ", ".join(f"{name}={environ[name]}" for name in names if name in environ)
        raise BadInputError(
            f"{present} says that {launcher.name} started this process, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing.",
            advice=f"Start it with the launcher ({launcher.start}), or unset what is left of another job.",
            launcher=launcher.name,
            missing=missing,
        )
    rank, size, local_rank = (_whole_number(name, environ[name]) for name in names)
    return Placement(rank, size, local_rank, launcher.name, _address(launcher.name, environ, size))


def _whole_number(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text.strip(), re.ASCII):
        raise BadInputError(
            f"{name} is {text!r}, not a whole number from 0 up.",
            advice="Start all ranks with one launcher, and set none of its variables by hand.",
            name=name,
            value=text,
        )
    return int(text)


def _address(launcher: str, environ: Mapping[str, str], size: int) -> str | None:
    host, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    if launcher == "SLURM":
        host = host or _first_host(environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_NODELIST", ""))
        job = environ.get("SLURM_JOB_ID", "")
        # Two jobs that share a machine have different numbers, so they do not meet each other.
        port = port or (str(20_000 + int(job) % 10_000) if job.isdecimal() else None)
    if host and port:
        return f"{f'[{host}]' if ':' in host else host}:{_whole_number('MASTER_PORT', port)}"
    if size == 1 or (not host and not port):
        return None
    raise BadInputError(
        f"Only one of MASTER_ADDR ({host or 'missing'}) and MASTER_PORT ({port or 'missing'}) is set.",
        advice="Set both, alike on all ranks: the machine of rank 0, and a free port on it.",
        address=host,
        port=port,
    )


def _first_host(nodes: str) -> str | None:
    """The first machine of a SLURM list such as ``node[01-03,07],login``: ``node01``."""
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\])?", nodes)
    return None if match is None else match[1] + (match[2] or "")
