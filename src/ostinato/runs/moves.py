"""Several renames that happen all or not at all, as far as anybody who opens the run can see.

The list of renames is first written, in one atomic step, to ``restore.json``: that is the moment at which a restore is
decided. Whoever opens the run next, after a power cut for example, finishes the list before anything else. Every
rename can be repeated: one whose source is gone was done before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ostinato.runs.atomic import ChecksumMismatchError, Files, read_bounded
from ostinato.runs.manifest import GenerationName

INTENT_FILE = "restore.json"
SET_ASIDE = "set-aside"
_MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Moves:
    """Renames inside ``generations/`` that belong together.

    :param target: the generation that is the newest one afterwards.
    :param pairs: (from, to), with forward slashes, relative to ``generations/``.
    """

    target: str
    pairs: tuple[tuple[str, str], ...]

    def write(self, folder: Path, files: Files) -> None:
        """Decide: from here on the moves will happen."""
        content = {"format": 1, "target": self.target, "moves": [list(pair) for pair in self.pairs]}
        files.replace(folder / INTENT_FILE, json.dumps(content).encode())

    def carry_out(self, folder: Path, files: Files) -> None:
        """Do what is left to do, and forget the list."""
        generations = folder / "generations"
        touched = {generations}
        for source, target in self.pairs:
            if (generations / source).exists() and not (generations / target).exists():
                parent = (generations / target).parent
                files.make_folder(parent)
                files.rename(generations / source, generations / target)
                touched |= {parent, parent.parent, (generations / source).parent}
        for path in sorted(touched):
            files.flush_folder(path)
        files.remove(folder / INTENT_FILE)
        files.flush_folder(folder)


def pending_moves(folder: Path) -> Moves | None:
    """The moves that a restore decided and did not finish.

    :raises ChecksumMismatchError: the list is there and cannot be read.
    """
    path = folder / INTENT_FILE
    if not path.exists():
        return None
    try:
        raw: dict[str, Any] = json.loads(read_bounded(path, _MAX_BYTES).decode())
        pairs = tuple((str(source), str(target)) for source, target in raw["moves"])
        target = str(raw["target"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ChecksumMismatchError(f"cannot be read: {error}") from error
    if GenerationName.parse(target) is None:
        raise ChecksumMismatchError(f"names {target[:100]!r}, which is no generation")
    for text in (path for pair in pairs for path in pair):
        if not _is_allowed(text):
            raise ChecksumMismatchError(f"names {text!r}, which is no place of a generation")
    return Moves(target, pairs)


def _is_allowed(text: str) -> bool:
    parts = PurePosixPath(text).parts
    if len(parts) == 3 and parts[0] == SET_ASIDE and parse_set_aside(parts[1]) is not None:
        parts = parts[2:]
    return len(parts) == 1 and GenerationName.parse(parts[0]) is not None


def set_aside_folder(number: int, after: GenerationName) -> str:
    """Name of the folder for what a restore takes out: which one, and which generation was restored then."""
    return f"{number:04d}-after-{after}"


def parse_set_aside(text: str) -> tuple[int, GenerationName] | None:
    """Number and restored generation from such a name, or None."""
    number, _, after = text.partition("-after-")
    name = GenerationName.parse(after)
    if name is None or not number.isascii() or not number.isdigit() or len(number) > 9:
        return None
    return int(number), name


def plan_restore(
    target: GenerationName, present: Sequence[GenerationName], aside: Mapping[str, Sequence[GenerationName]]
) -> Moves:
    """The moves that make ``target`` the newest generation. A pure function.

    What is newer goes to a new folder below ``set-aside/``. A target that an earlier restore set aside comes back
    together with what is older beside it, and what was trained since that restore is set aside in turn; so every
    restore can be undone.

    :param present: generations in ``generations/``.
    :param aside: by folder name below ``set-aside/``, oldest restore first.
    :raises LookupError: there is no such generation.
    """
    number = max((parsed[0] for name in aside if (parsed := parse_set_aside(name))), default=0) + 1
    home = None
    branch = target
    if target not in present:
        for name in reversed(list(aside)):
            if target in aside[name]:
                home = name
                parsed = parse_set_aside(name)
                branch = parsed[1] if parsed else target
                break
        else:
            raise LookupError(str(target))
    out = f"{SET_ASIDE}/{set_aside_folder(number, branch)}"
    pairs = [(str(name), f"{out}/{name}") for name in sorted(present, reverse=True) if name > branch]
    if home is not None:
        back = [name for name in sorted(aside[home]) if name <= target]
        pairs += [(f"{SET_ASIDE}/{home}/{name}", str(name)) for name in back]
    return Moves(str(target), tuple(pairs))
