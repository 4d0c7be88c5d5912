"""Every test in this folder compares with golden numbers, so each one needs ``--golden DIR``."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _needs_golden_numbers(golden: Path) -> None:
    """Skip, with the reason, where no folder is given; also a test that reaches the folder some other way."""
