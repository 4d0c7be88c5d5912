"""A trainer as the second of two ranks sees it, for extensions that only the first one may act in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from loop_stand_ins import CountingUpdater


def second_rank(out: Path, *extensions: Any) -> Any:
    """A stand-in for a trainer; ``extensions`` are those that can be asked for by the name of their class."""
    by_name = {type(extension).__name__: extension for extension in extensions}
    return SimpleNamespace(
        updater=CountingUpdater(),
        out=out,
        observation={"a": 1.0},
        elapsed_time=0.0,
        max_iteration=None,
        status="running",
        group=SimpleNamespace(rank=1, size=2),
        get_extension=by_name.__getitem__,
    )
