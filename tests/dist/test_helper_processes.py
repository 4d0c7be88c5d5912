from __future__ import annotations

import os
from pathlib import Path

import pytest

from ostinato.dist.helper_processes import Helper, helping


def test_a_helper_that_fails_is_started_again_and_ends_with_the_ranks(tmp_path: Path) -> None:
    pipe = tmp_path / "says"
    os.mkfifo(pipe)
    script = tmp_path / "helper"
    # Says its number to the pipe; the first one then fails, the second waits to be ended.
    script.write_text(f'echo $$ > "{pipe}"\nif [ -e "$AGAIN" ]; then exec sleep 600; fi\ntouch "$AGAIN"\nexit 3\n')
    lives: list[int] = []

    def fail() -> None:
        with helping([Helper("sleeper", ("sh", str(script)), {"AGAIN": str(tmp_path / "again")})]):
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
    with helping([Helper("writer", ("sh", "-c", f'cat "{pipe}" > "{done}"'))]):
        pipe.write_text("written")
    assert done.read_text() == "written"
