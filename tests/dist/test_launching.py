from __future__ import annotations

import sys

import pytest

from ostinato.dist.hosts import Host
from ostinato.dist.launching import Job, LaunchError, _failed, _program, free_port


def test_a_free_port_is_a_port() -> None:
    assert 0 < free_port() < 2**16


class Failure:
    """As much of a failure in torch.distributed.elastic as is looked at."""

    def __init__(self, exitcode: int, timestamp: int) -> None:
        self.exitcode, self.timestamp = exitcode, timestamp


def test_a_rank_that_was_stopped_in_the_same_second_is_not_the_one_that_is_named() -> None:
    job = Job(("train",), (Host("a", 2),))
    assert "Rank 1 of 2 ended with status 1" in str(_failed(job, {0: Failure(-15, 10), 1: Failure(1, 10)}))


def test_python_is_the_one_that_runs_here() -> None:
    assert [_program(word) for word in ("python", "python3", "./train", "python3.9")] == [
        sys.executable,
        sys.executable,
        "./train",
        "python3.9",
    ]


def test_the_first_rank_that_failed_is_the_one_that_is_named() -> None:
    job = Job(("train",), (Host("a", 3),))
    error = _failed(job, {0: Failure(1, 20), 2: Failure(-9, 10)})
    assert isinstance(error, LaunchError)
    assert "Rank 2 of 3 was ended by SIGKILL" in str(error)
    assert error.exit_code == 1
    assert _failed(job, {1: Failure(3, 1)}).exit_code == 3
    assert job.ranks == 3


@pytest.mark.parametrize("status", [2, 3, 4])
def test_a_status_that_is_final_is_that_of_the_job_whoever_ended_first(status: int) -> None:
    job = Job(("train",), (Host("a", 3),))
    error = _failed(job, {0: Failure(1, 10), 1: Failure(-15, 9), 2: Failure(status, 11)})
    assert (error.fields["rank"], error.exit_code) == (2, status)
    assert "not started again" in str(error)
    assert "used up" not in str(error)


def test_the_restarts_that_are_used_up_are_counted() -> None:
    assert "the restart that was allowed is used up" in str(_failed(Job(("train",), (), 0, 0, 1), {0: Failure(1, 1)}))
    assert "the 3 restarts that were allowed are used up" in str(_failed(Job(("train",), ()), {0: Failure(1, 1)}))
