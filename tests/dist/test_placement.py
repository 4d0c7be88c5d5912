from __future__ import annotations

import pytest

from ostinato.dist import Placement, detect_placement
from ostinato.errors import BadInputError

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "node01", "MASTER_PORT": "29500"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "6",
    "SLURM_LOCALID": "2",
    "SLURM_JOB_ID": "4512345",
    "SLURM_STEP_NODELIST": "gpu[007-008,012],login",
}


def test_without_a_launcher_there_is_no_place() -> None:
    assert detect_placement({"MASTER_ADDR": "node01", "SLURM_NTASKS": "4", "LOCAL_RANK": "0"}) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (TORCHRUN, Placement(3, 8, 1, "torchrun", "node01:29500")),
        (OPEN_MPI, Placement(2, 4, 0, "Open MPI", None)),
        (OPEN_MPI | {"MASTER_ADDR": "::1", "MASTER_PORT": "1"}, Placement(2, 4, 0, "Open MPI", "[::1]:1")),
        (SLURM, Placement(5, 6, 2, "SLURM", "gpu007:22345")),
        (SLURM | {"SLURM_STEP_NODELIST": "a,b"}, Placement(5, 6, 2, "SLURM", "a:22345")),
        (SLURM | {"SLURM_STEP_NODELIST": "gpu[7]"}, Placement(5, 6, 2, "SLURM", "gpu7:22345")),
        (SLURM | {"MASTER_ADDR": "head", "MASTER_PORT": "77"}, Placement(5, 6, 2, "SLURM", "head:77")),
        # mpirun inside a SLURM job, torchrun inside both
        (SLURM | OPEN_MPI, Placement(2, 4, 0, "Open MPI", None)),
        (SLURM | OPEN_MPI | TORCHRUN, Placement(3, 8, 1, "torchrun", "node01:29500")),
    ],
)
def test_each_launcher_is_recognised(environment, expected) -> None:
    assert detect_placement(environment) == expected


@pytest.mark.parametrize(("environment", "name"), [(TORCHRUN, "torchrun"), (OPEN_MPI, "Open MPI"), (SLURM, "SLURM")])
def test_a_half_set_environment_is_refused_with_what_is_missing(environment, name) -> None:
    rank, size, local_rank = list(environment)[:3]
    for missing in (size, local_rank):
        rest = {key: value for key, value in environment.items() if key != missing}
        with pytest.raises(BadInputError, match=f"says that {name} started this process, and {missing} is missing"):
            detect_placement(rest)
    with pytest.raises(BadInputError, match=f"{size} and {local_rank} are missing"):
        detect_placement({rank: "0"})


def test_a_world_size_without_a_rank_is_half_an_environment() -> None:
    with pytest.raises(BadInputError, match=r"WORLD_SIZE=2 says .* RANK and LOCAL_RANK are missing"):
        detect_placement({"WORLD_SIZE": "2"})


@pytest.mark.parametrize("value", ["", "two", "-1", "1.0", "²"])
def test_what_is_no_number_is_refused_with_its_name(value) -> None:
    with pytest.raises(BadInputError, match=r"LOCAL_RANK is .*, not a whole number"):
        detect_placement(TORCHRUN | {"LOCAL_RANK": value})


def test_numbers_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"\(Open MPI\): rank 4 is not one of 0 to 3"):
        detect_placement(OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "4"})
    with pytest.raises(BadInputError, match="local rank 9 is not one of 0 to 7"):
        detect_placement(TORCHRUN | {"LOCAL_RANK": "9"})
    with pytest.raises(BadInputError, match="the number of ranks is 0"):
        Placement(0, 0, 0)


@pytest.mark.parametrize("half", [{"MASTER_ADDR": "node01"}, {"MASTER_PORT": "29500"}])
def test_half_an_address_is_refused(half) -> None:
    with pytest.raises(BadInputError, match=r"Only one of MASTER_ADDR .* and MASTER_PORT .* is set"):
        detect_placement(OPEN_MPI | half)
