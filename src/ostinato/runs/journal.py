"""The journal: one JSON line for each commit, restore and repair. For people and for plots.

No decision about what to load rests on it alone; a journal that is cut, zeroed or gone costs history, nothing else. The
one thing it can do is to contradict: where it tells of commits and no generation is left, a run is not new.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ostinato.runs.atomic import ChecksumMismatchError, Files, open_regular

_log = logging.getLogger(__name__)

JOURNAL_FILE = "journal.jsonl"
MAX_LINE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Journal:
    """The journal at ``path``.

    :param files: how to write.
    """

    path: Path
    files: Files = field(default_factory=Files)

    def add(self, event: str, **fields: Any) -> str | None:
        """Append one line; a failure is a warning, since nothing depends on the journal.

        :param event: ``commit``, ``mark`` (a further reason to keep it), ``evict``, ``restore`` or ``damage``.
        :return: what went wrong, or None.
        """
        try:
            self.files.append_line(self.path, json.dumps({"event": event, **fields}, allow_nan=False))
        except OSError as error:
            text = f"The journal {self.path} could not be written: {error.strerror or error}."
            _log.warning("%s The state itself is not affected.", text)
            return text
        return None

    def read(self) -> tuple[list[dict[str, Any]], int]:
        """All entries, oldest first, and how many lines could not be read."""
        entries: list[dict[str, Any]] = []
        broken = 0
        for line in self._lines():
            try:
                entry = json.loads(line.decode())
                if not isinstance(entry, dict):
                    raise ValueError("no object")
            except (ValueError, RecursionError):
                broken += 1
            else:
                entries.append(entry)
        return entries, broken

    def _lines(self) -> Iterator[bytes]:
        try:
            descriptor = open_regular(self.path)
        except (OSError, ChecksumMismatchError):
            return
        with open(descriptor, "rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                if line.strip():
                    yield line

    def tells_of_commits(self) -> bool:
        """Whether any readable line is a commit."""
        return any(entry.get("event") == "commit" for entry in self.read()[0])
