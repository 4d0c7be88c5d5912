"""What every loader's saved state says of itself, and what is checked before one goes on from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ostinato.errors import StateError

STATE_FORMAT = 1


def check_loader_state(state: Mapping[str, Any], seed: int) -> None:
    """Refuse a state from which a loader cannot go on.

    :param state: with ``format`` and ``seed``.
    :param seed: of the loader that is to go on.
    :raises StateError: the state is of another format, or of a run with another seed.
    """
    if state["format"] != STATE_FORMAT:
        raise StateError(
            f"The loader's state has format {state['format']}; this version reads format {STATE_FORMAT}.",
            advice="Use the version of Ostinato that wrote it.",
        )
    if state["seed"] != seed:
        raise StateError(
            f"The loader's state belongs to seed {state['seed']}, and this loader has seed {seed}.",
            advice="Continue with the seed the run was started with.",
        )
