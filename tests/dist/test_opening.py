"""What is refused before any rank is met."""

from __future__ import annotations

import math

import pytest

from ostinato.dist import Alone, Placement, open_group
from ostinato.errors import BadInputError


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_launcher_the_group_is_alone() -> None:
    with open_group() as group:
        assert isinstance(group, Alone)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of gloo, nccl, not 'mpi'"):
        open_group(backend="mpi")


@pytest.mark.parametrize("timeout", [0, -1.0, math.nan, math.inf])
def test_a_time_out_must_be_above_0_and_finite(timeout) -> None:
    with pytest.raises(ValueError, match="must be above 0 seconds and finite"):
        open_group(timeout=timeout)


@pytest.mark.parametrize("timeout", ["60", None, True])
def test_a_time_out_must_be_a_number(timeout) -> None:
    with pytest.raises(TypeError, match="must be a number of seconds"):
        open_group(timeout=timeout)


def test_ranks_without_an_address_are_told_what_to_set(monkeypatch) -> None:
    for name, value in (("RANK", "1"), ("SIZE", "2"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    with pytest.raises(BadInputError, match=r"Open MPI has started 2 ranks .* Set MASTER_ADDR"):
        open_group(backend="gloo")


def test_meeting_in_a_folder_that_is_not_there_is_refused(tmp_path) -> None:
    with pytest.raises(BadInputError, match="there is no folder"):
        open_group(backend="gloo", placement=Placement(0, 2, 0), rendezvous=tmp_path / "no" / "file")


def test_a_rank_without_a_device_is_told_how_many_there_are() -> None:
    with pytest.raises(BadInputError, match=r"Local rank 99 needs a CUDA device of its own.*backend='gloo'"):
        open_group(backend="nccl", placement=Placement(99, 100, 99))


def test_ranks_that_do_not_come_are_named_after_the_time_out(tmp_path) -> None:
    with pytest.raises(RuntimeError, match=r"Rank 0 of 2 could not meet the others within 0\.2 seconds"):
        open_group(backend="gloo", placement=Placement(0, 2, 0), rendezvous=tmp_path / "meeting", timeout=0.2)
