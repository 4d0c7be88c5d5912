from __future__ import annotations

import faulthandler
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ostinato.errors import StateError
from ostinato.extensions.signals import StopSignals
from ostinato.extensions.stack_dump import StackDump


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


@pytest.fixture
def parked_thread() -> Iterator[str]:
    """A thread that waits in a function of a known name."""
    let_go, is_there = threading.Event(), threading.Event()

    def waits_in_a_collective() -> None:
        is_there.set()
        let_go.wait()

    thread = threading.Thread(target=waits_in_a_collective)
    thread.start()
    is_there.wait()
    yield "waits_in_a_collective"
    let_go.set()
    thread.join()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_the_stacks_of_all_threads_are_written_and_a_log_line_says_where(
    tmp_path: Path, parked_thread: str, caplog: pytest.LogCaptureFixture, number: signal.Signals
) -> None:
    with caplog.at_level(logging.WARNING), StackDump(tmp_path / "logs", number, rank=3) as dump:
        assert dump.path == tmp_path / "logs" / "stacks_3.txt"
        for times in (1, 2):
            os.kill(os.getpid(), number)
            wait_for(lambda times=times: len(caplog.records) == times)
    text = dump.path.read_text()
    assert text.count(parked_thread) == 2
    assert text.count("test_the_stacks_of_all_threads_are_written") == 2
    assert text.count(f"--- stacks of process {os.getpid()} written until ") == 2
    assert caplog.records[0].getMessage() == (
        f"{number.name}: the stacks of all threads are in {dump.path}; training goes on."
    )


STUCK = """
import sys
from ostinato.extensions.stack_dump import StackDump

def adds_without_end():
    print("ready", flush=True)
    sum(range(10**15))  # in C: no handler of Python's runs before it is done

with StackDump(sys.argv[1]):
    adds_without_end()
"""


def test_they_are_written_while_python_cannot_run(tmp_path: Path) -> None:
    # As in a collective operation that waits for ever: nothing of Python gets its turn.
    child = subprocess.Popen([sys.executable, "-c", STUCK, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGUSR1)
        wait_for(lambda: "adds_without_end" in (tmp_path / "stacks_0.txt").read_text())
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()


def test_afterwards_everything_is_as_before_and_an_empty_file_is_gone(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    dump = StackDump(tmp_path / "logs")
    assert not dump.path.parent.exists()
    for _ in range(2):  # it can be opened again
        with dump:
            assert dump.path.exists()
    assert signal.getsignal(signal.SIGUSR1) is before
    assert list(dump.path.parent.iterdir()) == []
    dump.close()


def test_a_signal_that_is_handled_already_is_refused(tmp_path: Path) -> None:
    with StopSignals(lambda reason: None, signals=(signal.SIGUSR1,)):
        with pytest.raises(StateError, match=r"SIGUSR1 is handled already, by StopSignals.*signal\.SIGUSR2"):
            StackDump(tmp_path).open()
        with StackDump(tmp_path, signal.SIGUSR2):
            pass
    assert list(tmp_path.iterdir()) == []


def test_it_is_opened_once(tmp_path: Path) -> None:
    with StackDump(tmp_path) as dump:
        with pytest.raises(StateError, match="open already"):
            dump.open()
        with pytest.raises(StateError, match=r"handled already, by StackDump\._note"):
            StackDump(tmp_path, rank=1).open()


def test_another_thread_cannot_open_it(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def open_there() -> None:
        try:
            StackDump(tmp_path).open()
        except StateError as error:
            errors.append(error)

    thread = threading.Thread(target=open_there)
    thread.start()
    thread.join()
    assert "Open StackDump in the main thread." in str(errors[0])


def test_a_system_without_such_a_signal_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(faulthandler, "register")
    with pytest.raises(StateError, match="no signal that could ask for the stacks"):
        StackDump(tmp_path).open()
    monkeypatch.delattr(signal, "SIGUSR1")
    assert StackDump(tmp_path).number is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"number": "USR1"}, TypeError, "number must be a signal such as signal.SIGUSR2, not 'USR1'"),
        ({"number": 4711}, ValueError, "this system has no signal 4711"),
        ({"rank": "0"}, TypeError, "rank must be a whole number, not '0'"),
        ({"rank": -1}, ValueError, "rank must be 0 or more, not -1"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        StackDump("logs", **arguments)
