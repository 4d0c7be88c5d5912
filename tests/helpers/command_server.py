"""Starts `ostinato` again and again without paying for the imports each time: python command_server.py [real]

It imports everything once and forks for each start. Requests and answers are lines of JSON on standard input and
output; :mod:`command_client` speaks to it. A start is a process of its own, in a session of its own, with its own
files for output, so it can be killed like any other. It trains the tiny model in place of the real ones, unless it is
told ``real``.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import Any

import faults
import tiny_model


def main() -> None:
    for place in tiny_model.PLACES if sys.argv[1:] != ["real"] else ():
        module, name = place.rsplit(".", 1)
        setattr(importlib.import_module(module), name, tiny_model.build_tiny_model)
    # What torch would otherwise import in the first update of every start.
    importlib.import_module("torch._dynamo")
    importlib.import_module("ostinato.cli.main")
    importlib.import_module("ostinato.cli.swap")
    for line in sys.stdin:
        request = json.loads(line)
        answer = _start(request) if request["do"] == "start" else _wait(request["pid"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _start(request: dict[str, Any]) -> dict[str, int]:
    pid = os.fork()
    if pid:
        return {"pid": pid}
    status = 70
    try:
        os.setsid()
        _connect(request)
        # A shell that starts the tests in the background has Ctrl-C ignored, and nohup the end of the terminal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        for signal_number in request["ignored_signals"]:
            signal.signal(signal_number, signal.SIG_IGN)
        os.environ.update(request["environment"])
        for name, arguments in request["faults"].items():
            getattr(faults, name)(**arguments)
        from ostinato.cli.main import run

        status = run([os.fsdecode(word.encode("utf-8", "surrogateescape")) for word in request["words"]])
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        # Not sys.exit: that would unwind into the server's own loop.
        os._exit(status)


def _connect(request: dict[str, Any]) -> None:
    """Give the child its standard input and output; Python's own objects follow, encoded as the environment asks."""
    terminal = request["terminal"]
    if terminal is not None:
        descriptor = os.open(terminal, os.O_RDWR)  # the first terminal a session opens becomes its own
        for number in range(3):
            os.dup2(descriptor, number)
        os.close(descriptor)
    else:
        _redirect(0, os.open(os.devnull, os.O_RDONLY))
        _redirect(1, os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND))
        os.dup2(1, 2)
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        stream = open(number, mode, encoding="utf-8", errors="strict", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


def _redirect(number: int, descriptor: int) -> None:
    os.dup2(descriptor, number)
    os.close(descriptor)


def _wait(pid: int) -> dict[str, int]:
    return {"status": os.waitpid(pid, 0)[1]}


if __name__ == "__main__":
    main()
