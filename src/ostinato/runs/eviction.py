"""Removing generations that nothing wants any more: first out of sight in one step, then file by file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from ostinato.runs.atomic import Files
from ostinato.runs.manifest import GenerationName

_log = logging.getLogger(__name__)

TRASH_PREFIX = ".trash-"
"""Folders of this prefix are generations on their way out."""


def evict(files: Files, generations: Path, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Remove generations, and before them what an earlier call left half removed.

    :param generations: the folder that holds them.
    :return: the names of those that are gone, and a sentence about each that is not. Nothing is raised: a failed
        clean-up takes nothing from a save.
    """
    gone: list[str] = []
    failures: list[str] = []
    for name, is_trash in [*((name, True) for name in _half_removed(generations)), *((name, False) for name in names)]:
        trash = generations / f"{TRASH_PREFIX}{name}"
        try:
            # A generation that is half deleted must not look like a damaged one.
            if not is_trash:
                files.rename(generations / name, trash)
            files.remove_tree(trash)
        except FileNotFoundError:
            gone.append(name)
        except OSError as error:
            failures.append(
                f"The old generation {name} could not be removed: {error.strerror or error}. The next save tries again."
            )
            _log.warning("%s", failures[-1])
        else:
            gone.append(name)
    return gone, failures


def _half_removed(generations: Path) -> list[str]:
    try:
        found = [entry.name.removeprefix(TRASH_PREFIX) for entry in generations.glob(f"{TRASH_PREFIX}*")]
    except OSError:
        return []
    return sorted(name for name in found if GenerationName.parse(name) is not None)
