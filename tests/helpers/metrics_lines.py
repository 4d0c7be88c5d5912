"""What a run has written down of each of its iterations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def metrics_lines(run: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl`` of all sessions, in order; every iteration must have exactly one."""
    lines = [
        json.loads(line)
        for path in sorted(run.glob("logs/session_*/metrics.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert [line["iteration"] for line in lines] == list(range(1, len(lines) + 1)), "each iteration has one line"
    return lines


def losses_of(run: Path) -> list[float]:
    """The loss of each iteration, exactly as it was written."""
    return [line["loss"] for line in metrics_lines(run)]
