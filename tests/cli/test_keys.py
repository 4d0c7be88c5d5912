from __future__ import annotations

import io
import os
import threading

import pytest

from ostinato.cli.keys import ConsoleKeys

pty = pytest.importorskip("pty")


def test_a_stream_that_is_no_terminal_is_left_alone():
    keys = ConsoleKeys({"s": lambda: None}, io.StringIO("s"))
    assert keys.open() is False
    keys.close()


def test_a_pipe_is_no_terminal():
    read, write = os.pipe()
    with os.fdopen(read) as stream:
        assert ConsoleKeys({}, stream).open() is False
    os.close(write)


def test_a_key_on_the_terminal_calls_its_action_and_the_terminal_is_given_back(monkeypatch):
    import termios

    leader, follower = pty.openpty()
    # The test process is not in the foreground of the new terminal; say that it is.
    monkeypatch.setattr(os, "tcgetpgrp", lambda descriptor: os.getpgrp())
    before = termios.tcgetattr(follower)
    pressed: list[str] = []
    both = threading.Event()

    def note(key: str) -> None:
        pressed.append(key)
        if len(pressed) == 2:
            both.set()

    with os.fdopen(follower) as stream:
        keys = ConsoleKeys({"s": lambda: note("s"), "\n": lambda: note("enter")}, stream)
        assert keys.open() is True
        os.write(leader, b"Sx\n")
        assert both.wait(120)
        keys.close()
        assert pressed == ["s", "enter"]
        assert termios.tcgetattr(stream.fileno()) == before
    os.close(leader)


def test_in_the_background_of_a_terminal_nothing_is_changed(monkeypatch):
    leader, follower = pty.openpty()
    monkeypatch.setattr(os, "tcgetpgrp", lambda descriptor: os.getpgrp() + 1)
    with os.fdopen(follower) as stream:
        assert ConsoleKeys({}, stream).open() is False
    os.close(leader)
