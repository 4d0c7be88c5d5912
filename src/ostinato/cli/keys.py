"""Single key presses on a terminal while a training runs."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, TextIO


class ConsoleKeys:
    """Calls an action for each key pressed on the terminal, without waiting for the Enter key.

    Nothing happens before :meth:`open`, which does nothing and returns False when the stream is no terminal, when this
    process runs in the background of one, or where the system has no ``termios``. Usable as a context manager.

    :param actions: a key (one character; Enter is ``"\\n"``; letters in lower case) to the function it calls. The
        functions are called on a thread of their own, so they should only note what is wanted.
    :param stream: where keys come from; the standard input by default.
    """

    def __init__(self, actions: Mapping[str, Callable[[], None]], stream: TextIO | None = None) -> None:
        self._actions = dict(actions)
        self._stream = sys.stdin if stream is None else stream
        self._saved: list[Any] | None = None
        self._wake: tuple[int, int] | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> bool:
        """Begin to listen. Returns whether there is a terminal to listen to."""
        try:
            import termios
            import tty

            descriptor = self._stream.fileno()
            # Changing a terminal from the background would stop the whole process (SIGTTOU).
            if not os.isatty(descriptor) or os.tcgetpgrp(descriptor) != os.getpgrp():
                return False
            self._saved = termios.tcgetattr(descriptor)
            tty.setcbreak(descriptor)
        except (ImportError, OSError, ValueError, AttributeError):
            return False
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._listen, args=(descriptor,), name="ostinato-keys", daemon=True)
        self._thread.start()
        return True

    def close(self) -> None:
        """Stop listening and give the terminal back as it was. May be called twice."""
        if self._thread is None or self._wake is None:
            return
        os.write(self._wake[1], b"x")
        self._thread.join()
        self._thread = None
        for end in self._wake:
            os.close(end)
        self._wake = None
        import termios

        with contextlib.suppress(termios.error, OSError, ValueError):
            termios.tcsetattr(self._stream.fileno(), termios.TCSADRAIN, self._saved or [])

    def _listen(self, descriptor: int) -> None:
        assert self._wake is not None
        while True:
            ready, _, _ = select.select([descriptor, self._wake[0]], [], [])
            if self._wake[0] in ready:
                return
            try:
                pressed = os.read(descriptor, 32)
            except OSError:
                return
            if not pressed:  # the terminal went away
                return
            for character in pressed.decode("utf-8", "ignore").replace("\r", "\n").lower():
                if action := self._actions.get(character):
                    action()

    def __enter__(self) -> ConsoleKeys:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
