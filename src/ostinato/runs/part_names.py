"""Names of files that several ranks write parts of: ``centres-00000-of-00004.safetensors``."""

from __future__ import annotations

import re
from dataclasses import dataclass

RANK_STEM = "rank"
"""Stem of the files that hold what one rank alone needs to go on."""

_PART = re.compile(r"(?P<stem>[a-z][a-z0-9_.-]*)-(?P<index>\d{5})-of-(?P<count>\d{5})\.(?P<kind>safetensors|json)")


@dataclass(frozen=True)
class PartName:
    """The name of one part, taken apart.

    :param stem: what the parts have in common.
    :param index: the rank that wrote it.
    :param count: how many ranks there were.
    :param kind: ``safetensors`` or ``json``.
    """

    stem: str
    index: int
    count: int
    kind: str = "safetensors"

    def __str__(self) -> str:
        return f"{self.stem}-{self.index:05d}-of-{self.count:05d}.{self.kind}"

    @classmethod
    def parse(cls, text: str) -> PartName | None:
        """The parts of a file name, or None when it is the name of a whole file."""
        match = _PART.fullmatch(text)
        if match is None:
            return None
        return cls(match["stem"], int(match["index"]), int(match["count"]), match["kind"])
