from __future__ import annotations

from pathlib import Path

import pytest

from ostinato.dist.hosts import Host, fill_hosts, find_this_host, parse_hosts, read_host_file
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
