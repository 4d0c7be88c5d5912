"""SIGKILL at random moments while a writer thread saves without pause."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from ostinato.runs import RunFolder

PROGRAM = Path(__file__).with_name("save_forever.py")
KILLS = 6


def test_every_kill_leaves_what_was_reported_as_saved(tmp_path: Path) -> None:
    draw = random.Random(1)
    folder = tmp_path / "run"
    reported = 0
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, str(PROGRAM), str(folder)], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "begun\n"
            if not reported:  # on a slow disk even the longest time below might end before the first save
                reported = int(child.stdout.readline())
            time.sleep(draw.uniform(0.05, 0.6))
            child.send_signal(signal.SIGKILL)
            lines = child.stdout.read().split()
            child.wait()
        assert child.returncode == -signal.SIGKILL
        reported = max([reported, *(int(line) for line in lines if line.isdigit())])

        view = RunFolder(folder)
        assert all(not damage for damage in view.verify().values())
        loaded = view.load_newest()
        assert loaded is not None
        assert loaded.iteration >= reported
        assert loaded.model["weight"].eq(loaded.iteration).all()
        assert loaded.optimizer["mean"].eq(loaded.iteration).all()
        assert loaded.state["position"] == loaded.iteration
