"""Commands of ``ostinato recognition`` in the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Recognition = Callable[..., tuple[int, str, str]]


@pytest.fixture
def recognition(capfd: pytest.CaptureFixture[str]) -> Recognition:
    """Runs a command of `ostinato recognition` in this process: exit status, output, error output."""
    from ostinato.cli.main import run

    def call(*words: str | Path) -> tuple[int, str, str]:
        capfd.readouterr()
        status = run(["recognition", *map(str, words)])
        return status, *capfd.readouterr()

    return call
