from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from ostinato.cli import launch as launch_module
from ostinato.cli.launch import launch
from ostinato.dist.hosts import Host
from ostinato.dist.launching import Job, LaunchError
from ostinato.errors import UsageError
from ostinato.kvstore import server_settings


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """What would have been started."""
    started: list[Job] = []
    monkeypatch.setattr(launch_module, "launch_job", started.append)
    return started


def test_ranks_on_this_machine(jobs: list[Job]) -> None:
    launch(["python", "train.py", "-x"], ranks=3, max_restarts=7)
    assert jobs == [Job(("python", "train.py", "-x"), (Host("localhost", 3),), 0, 0, 7)]


def test_machines_are_filled_and_this_one_is_found(jobs: list[Job], tmp_path: Path) -> None:
    launch(["train"], ranks=3, hosts="a:2,b:2", this_host="b", port=5000)
    (tmp_path / "hosts").write_text("a slots=2\nb slots=2\n")
    launch(["train"], hostfile=tmp_path / "hosts", this_host="a")
    assert [(job.hosts, job.this_host, job.port) for job in jobs] == [
        ((Host("a", 2), Host("b", 1)), 1, 5000),
        ((Host("a", 2), Host("b", 2)), 0, 0),
    ]


def test_servers_and_ranks_are_told_the_same(jobs: list[Job]) -> None:
    launch(["train"], ranks=2, servers=2, staleness=3)
    (job,) = jobs
    told = server_settings.settings_from(job.environment)
    assert told is not None
    assert (told.servers, told.workers, told.staleness) == (2, 2, None)
    assert told.rendezvous.startswith("127.0.0.1:")
    for number, helper in enumerate(job.helpers):
        own = server_settings.settings_from(helper.environment)
        assert own is not None
        assert own.staleness == 3
        assert own.rendezvous == told.rendezvous
        assert server_settings.number_from(helper.environment, server_settings.SERVER) == number
        assert helper.command == (sys.executable, "-m", "ostinato.kvstore.server_process")


@pytest.mark.parametrize(
    "options",
    [
        {"ranks": 0},
        {"ranks": 5, "hosts": "a:2,b:2", "this_host": "a"},
        {"hosts": "a:2", "hostfile": Path("hosts")},
        {"hosts": "a:2,b:1", "this_host": "c"},
        {"ranks": 1, "servers": -1},
        {"ranks": 1, "staleness": 2},
        {"ranks": 1, "max_restarts": -1},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(jobs: list[Job], options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        launch(["train"], **options)
    assert not jobs


@pytest.mark.parametrize(
    ("command", "status", "raised"),
    [
        (["recognition", "train"], 3, typer.Exit),
        (["python", "train.py"], 3, LaunchError),
        (["recognition", "train"], 1, LaunchError),
    ],
)
def test_what_a_verb_has_said_is_not_said_again(
    command: list[str], status: int, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(job: Job) -> None:
        error = LaunchError("Rank 0 ended.", rank=0, status=status)
        error.exit_code = status
        raise error

    monkeypatch.setattr(launch_module, "launch_job", fail)
    with pytest.raises(raised) as caught:
        launch(command, ranks=2)
    assert caught.value.exit_code == status  # pyrefly: ignore


def test_help_needs_no_torch() -> None:
    code = "import sys, ostinato.cli.launch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
