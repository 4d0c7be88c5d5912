"""Which of two observed values is the better one."""

from __future__ import annotations

from typing import Any, Literal

from ostinato.errors import ArgumentValueError

Mode = Literal["auto", "min", "max"]


def check_mode(mode: Any, key: Any, owner: str) -> Literal["min", "max"]:
    """Whether smaller or greater values of a key are better; ``auto``: greater for a name that contains ``accuracy``.

    :raises ArgumentValueError: for anything but ``auto``, ``min`` and ``max``.
    """
    if mode not in ("auto", "min", "max"):
        raise ArgumentValueError(
            f"{owner}: mode is {mode!r}.", advice="Use 'auto', 'min' or 'max'.", name="mode", value=mode
        )
    if mode == "auto":
        return "max" if "accuracy" in str(key) else "min"
    return mode
