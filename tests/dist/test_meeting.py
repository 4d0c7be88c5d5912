from __future__ import annotations

from ostinato.dist import Placement
from ostinato.dist.meeting import meeting_file

ENVIRONMENT = {
    "PMIX_NAMESPACE": "2007826433",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_orte_hnp_uri": "2007826432.0;tcp://192.0.2.2:59377",
}


def _placement(rank: int = 0, address: str | None = None, launcher: str = "Open MPI", size: int = 2) -> Placement:
    return Placement(rank, size, rank, launcher, address)


def test_ranks_of_one_mpirun_meet_at_one_file_and_those_of_another_elsewhere() -> None:
    first = meeting_file(_placement(0), ENVIRONMENT)
    assert first is not None
    assert meeting_file(_placement(1), ENVIRONMENT) == first
    for name in ("PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri"):
        assert meeting_file(_placement(), {**ENVIRONMENT, name: "other"}) != first


def test_no_file_where_an_address_is_known_or_the_ranks_are_on_several_machines() -> None:
    assert meeting_file(None, ENVIRONMENT) is None
    assert meeting_file(_placement(address="127.0.0.1:5000"), ENVIRONMENT) is None
    assert meeting_file(_placement(launcher="SLURM"), ENVIRONMENT) is None
    assert meeting_file(_placement(size=4), ENVIRONMENT) is None
    assert meeting_file(_placement(), {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}) is None
    assert meeting_file(Placement(0, 1, 0, "Open MPI"), ENVIRONMENT) is None
