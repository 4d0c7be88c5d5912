"""Checks and phrases that several verbs share."""

from __future__ import annotations

import math
import os
from pathlib import Path

from ostinato.errors import BadInputError, UsageError


def check_range(option: str, value: float, low: float, high: float | None) -> None:
    """Refuse a number outside of ``low`` to ``high`` (both allowed; None: no upper bound).

    :raises UsageError: naming the option, the value and what is allowed.
    """
    if value >= low and (high is None or value <= high):
        return
    allowed = f"{low:,} or more" if high is None else f"{low:,} to {high:,}"
    raise UsageError(f"{option} is {value:,}.", advice=f"Allowed is {allowed}.", option=option, value=value)


def check_snapshots(kept: int) -> None:
    """Refuse a number of snapshots to be kept that means nothing.

    :raises UsageError: it is neither above 0 nor -1.
    """
    if kept < 1 and kept != -1:
        raise UsageError(
            f"--max-snapshots is {kept:,}.",
            advice="Give 1 or more, or -1 to keep all; -I 0 makes no snapshots.",
            option="--max-snapshots",
            value=kept,
        )


def check_seconds(option: str, value: float | None) -> None:
    """Refuse a time that is none; None, an option that was left out, passes.

    :raises UsageError: it is not above 0, or has no end.
    """
    if value is not None and not 0 < value < math.inf:
        raise UsageError(f"{option} is {value:g}.", advice="Give seconds above 0.", option=option, value=value)


def check_place(folder: Path) -> None:
    """Refuse a folder that cannot be made, since it or something on the way to it is a file.

    :raises BadInputError: naming that file.
    """
    there = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)
    if os.path.exists(there) and not there.is_dir():
        from ostinato.data.file_names import shown_name

        raise BadInputError(
            f"{shown_name(there)} is a file, and a folder is needed there.",
            advice="Give a new or an empty folder.",
            folder=str(folder),
        )
