"""Where ranks on one machine meet when their launcher does not say."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ostinato.dist.placement import Placement


def meeting_file(placement: Placement | None, environ: Mapping[str, str] | None = None) -> Path | None:
    """A file at which the ranks of a job of Open MPI on one machine can meet.

    Its ``mpirun`` tells every process the name of the job, but no address. So ``MASTER_ADDR`` and ``MASTER_PORT`` are
    needed only where there are several machines.

    :param environ: the variables; by default those of this process.
    :returns: for ``open_group(rendezvous=...)``; None where an address is known, or the ranks may be on several
        machines.
    """
    environ = os.environ if environ is None else environ
    if placement is None or placement.launcher != "Open MPI" or placement.size == 1 or placement.address is not None:
        return None
    job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid")
    if not job or environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") != str(placement.size):
        return None
    # Where mpirun itself listens makes two jobs that were given one name different.
    said = f"{job} {environ.get('OMPI_MCA_orte_hnp_uri') or environ.get('PMIX_SERVER_URI2', '')}"
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"ostinato-{os.getuid()}-{digest}"
