"""Whether a saved memory belongs to the trigger that is asked to take it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ostinato.errors import ArgumentValueError

_log = logging.getLogger(__name__)


def fits(state: Mapping[str, Any], owner: str, *, version: int, **settings: Any) -> bool:
    """Whether a saved memory was written by a trigger of the same kind with the settings that give it its meaning.

    A memory of other settings (another watched key, say) means nothing here: it is dropped with a warning, and the
    trigger starts fresh. An empty one is dropped without a word.

    :param owner: the trigger, for messages.
    :param version: the format that the trigger writes and reads, under ``format``.
    :param settings: what the memory must say about itself.
    :raises ArgumentValueError: when it is of this kind and of a format that is not known.
    """
    if not state:
        return False
    other = {name: state.get(name) for name, value in settings.items() if state.get(name) != value}
    if other:
        differences = ", ".join(f"{name} {value!r}" for name, value in other.items())
        _log.warning("%s starts fresh: what was saved under its name has %s", owner, differences)
        return False
    if state.get("format") != version:
        raise ArgumentValueError(
            f"The saved memory of {owner} has format {state.get('format')!r}; this version reads format {version}.",
            advice="Continue the run with the version of Ostinato that saved it, or a newer one.",
            format=state.get("format"),
        )
    return True
