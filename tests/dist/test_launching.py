from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ostinato.dist.launching import (
    Helper,
    Host,
    Job,
    LaunchError,
    _failed,
    _helping,
    _program,
    fill_hosts,
    find_this_host,
    free_port,
    parse_hosts,
    read_host_file,
)
from ostinato.errors import BadInputError, UsageError


def test_machines_as_horovod_writes_them() -> None:
    assert parse_hosts("a:4, b-2.example.org:2,c") == [Host("a", 4), Host("b-2.example.org", 2), Host("c", 1)]


@pytest.mark.parametrize("text", ["", "a:", "a:0", "a:x", "a:1,,b:1", "a b:1"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="host:slots"):
        parse_hosts(text)


def test_host_files_of_mpi(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# my machines\nnode1 slots=4\nnode2 slots = 2 max-slots=8  # half\n\nnode3:3\nnode4\n")
    assert read_host_file(path) == [Host("node1", 4), Host("node2", 2), Host("node3", 3), Host("node4", 1)]


@pytest.mark.parametrize("text", ["node1 slots=x", "node1 slots=0", "node 1 2 3", "# nothing"])
def test_broken_host_files_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(BadInputError, match="hosts"):
        read_host_file(path)
    with pytest.raises(BadInputError, match="cannot be read"):
        read_host_file(tmp_path / "missing")


def test_machines_are_filled_one_after_the_other() -> None:
    hosts = [Host("a", 4), Host("b", 4), Host("c", 4)]
    assert fill_hosts(hosts, 6) == [Host("a", 4), Host("b", 2)]
    assert fill_hosts(hosts, 12) == hosts
    for ranks in (0, 13):
        with pytest.raises(UsageError, match="12 slots"):
            fill_hosts(hosts, ranks)


def test_this_machine_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node2.cluster")
    assert find_this_host([Host("node1", 1), Host("node2", 1)]) == 1
    assert find_this_host([Host("node1", 1), Host("gateway", 1)], "gateway") == 1
    assert find_this_host([Host("localhost", 2)]) == 0
    with pytest.raises(UsageError, match=r"node2\.cluster"):
        find_this_host([Host("a", 1), Host("b", 1)])


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


def test_a_helper_that_fails_is_started_again_and_ends_with_the_ranks(tmp_path: Path) -> None:
    pipe = tmp_path / "says"
    os.mkfifo(pipe)
    script = tmp_path / "helper"
    # Says its number to the pipe; the first one then fails, the second waits to be ended.
    script.write_text(f'echo $$ > "{pipe}"\nif [ -e "$AGAIN" ]; then exec sleep 600; fi\ntouch "$AGAIN"\nexit 3\n')
    lives: list[int] = []

    def fail() -> None:
        with _helping([Helper("sleeper", ("sh", str(script)), {"AGAIN": str(tmp_path / "again")})]):
            lives.extend([int(pipe.read_text()), int(pipe.read_text())])
            raise KeyError("a rank failed")

    with pytest.raises(KeyError):
        fail()
    assert lives[0] != lives[1]
    with pytest.raises(ProcessLookupError):
        os.kill(lives[1], 0)


def test_helpers_may_end_by_themselves_after_the_ranks(tmp_path: Path) -> None:
    pipe, done = tmp_path / "go", tmp_path / "done"
    os.mkfifo(pipe)
    with _helping([Helper("writer", ("sh", "-c", f'cat "{pipe}" > "{done}"'))]):
        pipe.write_text("written")
    assert done.read_text() == "written"
