"""Importing any module of the package only defines things: no file, thread, process or signal handler comes of it."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import ostinato

# Everything is imported once, so that third parties have done what they do on import, and then the package alone again
# while an audit hook listens.
LISTEN = """
import importlib, json, signal, sys, threading

names = json.loads(sys.argv[1])
for name in names:
    importlib.import_module(name)
for name in [name for name in sys.modules if name.split(".")[0] == "ostinato"]:
    del sys.modules[name]

threads = set(threading.enumerate())
handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
module = None
heard = []
listening = True

def listen(event, arguments):
    if not listening or module is None:
        return
    if event == "open":
        path, mode, flags = arguments
        if str(path).endswith((".py", ".pyc")) and mode in (None, "r", "rb"):
            return
    elif not event.startswith(("socket.", "subprocess.", "os.mkdir", "os.remove", "os.rename", "os.fork", "signal.")):
        return
    heard.append(f"{module}: {event} {arguments!r}")

sys.dont_write_bytecode = True
sys.addaudithook(listen)
for module in names:
    importlib.import_module(module)
listening = False

heard += [f"thread {thread.name}" for thread in set(threading.enumerate()) - threads]
heard += [f"handler of {number!r}" for number, handler in handlers.items() if signal.getsignal(number) is not handler]
if "torch" in sys.modules and sys.modules["torch"].distributed.is_available():
    if sys.modules["torch"].distributed.is_initialized():
        heard.append("process group")
print(json.dumps(heard))
"""


def module_names() -> list[str]:
    return [
        "ostinato",
        *sorted(module.name for module in pkgutil.walk_packages(ostinato.__path__, prefix="ostinato.")),
    ]


def test_every_module_can_be_imported_and_does_nothing_else() -> None:
    names = module_names()
    assert "ostinato.cli.main" in names
    done = subprocess.run(
        [sys.executable, "-c", LISTEN, json.dumps(names)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_options_and_errors_are_there_without_torch() -> None:
    code = "import sys, ostinato.errors, ostinato.config; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "False\n", done.stderr
