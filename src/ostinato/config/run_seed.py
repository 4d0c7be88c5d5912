"""The seed of a run for which nobody has asked for one."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TypeVar

from ostinato.config.declaration import Options, value_at
from ostinato.config.reading import read_options
from ostinato.errors import ConfigError

T = TypeVar("T", bound=Options)


def with_seed(options: T, kept: Path | None = None) -> T:
    """These options with a seed, drawn where none was given.

    :param options: of a model with an option ``seed``, a number or None.
    :param kept: the file in which a run writes its options. One that was cut off before its first save keeps the seed
        it had drawn, so that it comes out the same.
    """
    if value_at(options, "seed") is not None:
        return options
    seed = None if kept is None else _seed_in(kept, type(options))
    if seed is None:
        seed = secrets.randbits(53)  # so few that the number survives every JSON reader, and a person can copy it
    return options.model_copy(update={"seed": seed})


def _seed_in(kept: Path, model: type[Options]) -> int | None:
    try:
        return value_at(read_options(model, kept).options, "seed")
    except ConfigError:  # there is none, or somebody has changed it
        return None
