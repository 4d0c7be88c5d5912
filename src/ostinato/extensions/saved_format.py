"""Which saved states an extension reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ostinato.errors import ArgumentValueError


def check_format(state: Mapping[str, Any], format: int, owner: str) -> None:
    """Make sure that a saved state is one that this version can read.

    :param owner: whose state it is; for the message.
    :raises ArgumentValueError: otherwise.
    """
    if state.get("format") != format:
        raise ArgumentValueError(
            f"The saved state of {owner} has format {state.get('format')!r}; this version reads format {format}.",
            advice=f"Continue with the version of Ostinato that saved it, or register {owner} under another name.",
            format=state.get("format"),
        )
