"""What every test shares: one thread, no colours, reproducible searches, and the folder of golden numbers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Before anything imports torch, and handed on to every process that a test starts: exact results need a fixed number
# of threads, and the suite's own workers already keep every core busy.
os.environ["OMP_NUM_THREADS"] = "1"

# A terminal's wishes for colour and width would change what the commands print.
for _name in ("FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "COLUMNS", "LINES"):
    os.environ.pop(_name, None)

settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.register_profile("search", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", metavar="DIR", default=None, help="folder of golden numbers for tests/conformance")


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--golden")
    if folder is not None and not Path(folder).is_dir():
        raise pytest.UsageError(f"--golden {folder}: there is no such folder")


def pytest_report_header(config: pytest.Config) -> str:
    return f"golden numbers: {config.getoption('--golden') or 'none (--golden=DIR compares with a folder of them)'}"


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Path:
    """The folder given with ``--golden``; without one, the test is skipped."""
    folder = request.config.getoption("--golden")
    if folder is None:
        pytest.skip("no folder of golden numbers given (--golden=DIR)")
    return Path(folder).resolve()
