from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.errors import RunLockedError
from ostinato.runs import RunFolder
from ostinato.runs import lock as lock_module
from ostinato.runs.lock import Holder, RunLock, current_holder

HOLD = """
import sys, time
from pathlib import Path
from ostinato.runs.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child
        child.kill()


def _leave(folder: Path, **changes: object) -> None:
    holder = {**vars(Holder.this_process()), "pid": 2**22 + 1, **changes}
    (folder / "lock").write_text(json.dumps(holder))


def test_a_second_trainer_is_told_who_trains(tmp_path: Path, other_process: subprocess.Popen[str]) -> None:
    with pytest.raises(RunLockedError, match=f"process {other_process.pid} on") as caught:
        RunFolder(tmp_path).open()
    assert caught.value.fields["pid"] == other_process.pid
    assert caught.value.exit_code == 3
    holder = current_holder(tmp_path)
    assert holder is not None
    assert holder.pid == other_process.pid
    assert not (tmp_path / "run.json").exists()


def test_the_lock_of_a_killed_process_is_taken_over_and_said_so(
    tmp_path: Path, other_process: subprocess.Popen[str]
) -> None:
    other_process.send_signal(signal.SIGKILL)
    other_process.wait()
    assert current_holder(tmp_path) is None
    run = RunFolder(tmp_path).open()
    assert f"process {other_process.pid}" in run.notices[0]
    assert "taken over" in run.notices[0]
    run.close()


def test_one_process_is_no_exception(tmp_path: Path) -> None:
    first, second = RunLock(tmp_path), RunLock(tmp_path)
    assert first.acquire() == ""
    assert first.acquire() == ""
    with pytest.raises(RunLockedError):
        second.acquire()
    first.release()
    assert second.acquire() == ""
    second.release()
    second.release()


def test_a_released_lock_leaves_nothing_to_tell(tmp_path: Path) -> None:
    for _ in range(2):
        lock = RunLock(tmp_path)
        assert lock.acquire() == ""
        lock.release()


def test_a_worker_made_by_fork_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    lock.acquire()
    gone, parent_is_gone = os.pipe()
    ready, child_is_ready = os.pipe()
    child = os.fork()
    if child == 0:  # lives on after the trainer is gone, as an orphaned worker would
        os.write(child_is_ready, b"x")
        os.read(gone, 1)
        os._exit(0)
    os.read(ready, 1)
    assert current_holder(tmp_path) is not None
    descriptor, lock._descriptor = lock._descriptor, None
    assert descriptor is not None
    os.close(descriptor)  # as the kernel does for a killed trainer
    assert current_holder(tmp_path) is None
    os.write(parent_is_gone, b"x")
    os.waitpid(child, 0)
    for end in (gone, parent_is_gone, ready, child_is_ready):
        os.close(end)


def test_garbage_in_the_file_locks_nobody_out(tmp_path: Path) -> None:
    endless = json.dumps({**vars(Holder.this_process()), "pid": 0}).replace('"pid": 0', '"pid": 1e999').encode()
    for content in (b"\0" * 100, b"{", b"[1]", b'{"pid": "x"}', b"\xff", endless):
        (tmp_path / "lock").write_bytes(content)
        lock = RunLock(tmp_path)
        lock.acquire()
        lock.release()


def test_a_number_that_no_process_can_have_is_that_of_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunLock, "_lock", lambda self, descriptor: False)
    _leave(tmp_path, pid=10**30)
    lock = RunLock(tmp_path)
    assert "has ended" in lock.acquire()
    lock.release()


def test_a_lock_from_before_a_restart_of_the_machine_is_taken_over(tmp_path: Path) -> None:
    _leave(tmp_path, boot="another")
    assert "started anew" in RunLock(tmp_path).acquire()


def test_another_host_name_on_a_local_disk_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "_is_on_local_disk", lambda _folder: True)
    _leave(tmp_path, host="elsewhere", boot="another")
    assert "another host name" in RunLock(tmp_path).acquire()


def test_another_host_on_a_shared_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "_is_on_local_disk", lambda _folder: False)
    _leave(tmp_path, host="elsewhere", boot="another")
    before = (tmp_path / "lock").read_bytes()
    with pytest.raises(RunLockedError, match=r"elsewhere.*remove .*lock"):
        RunLock(tmp_path).acquire()
    assert (tmp_path / "lock").read_bytes() == before


def test_without_the_systems_lock_the_process_table_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    _leave(tmp_path)
    assert "taken over" in RunLock(tmp_path).acquire()
    _leave(tmp_path, pid=os.getpid())
    with pytest.raises(RunLockedError):
        RunLock(tmp_path).acquire()
    _leave(tmp_path, pid=os.getpid(), process_start=1)  # the number was given to another process since
    assert "taken over" in RunLock(tmp_path).acquire()


def test_the_own_process_is_told_so_and_not_to_wait_for_itself(tmp_path: Path) -> None:
    first = RunLock(tmp_path)
    first.acquire()
    try:
        with pytest.raises(RunLockedError, match=r"which is this very one. Close it first. Two Snapshots") as raised:
            RunLock(tmp_path).acquire()
        assert "Wait" not in str(raised.value)
    finally:
        first.release()
