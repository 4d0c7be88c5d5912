"""The journal: one JSON line for each commit, restore, eviction and repair. For people and for plots.

No decision about what to load rests on it alone; a journal that is cut, zeroed or gone costs history, nothing else. The
one thing it can do is to contradict: where no generation is left, a run is new only if its journal tells that it was
begun, and of no commit.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ostinato.runs.atomic import ChecksumMismatchError, Files, open_regular
from ostinato.runs.manifest import GenerationName, Manifest

_log = logging.getLogger(__name__)

JOURNAL_FILE = "journal.jsonl"
MAX_LINE_BYTES = 1024 * 1024

BEGIN = "begin"
"""The event of a run that is new. A run without generations whose journal lacks it may have lost them."""

UNREADABLE = "unreadable"
"""The event that says how many lines before it could not be read, so that it is told once."""


@dataclass(frozen=True)
class JournalFindings:
    """What a journal tells to somebody who opens the run.

    :param exists: whether there is a line.
    :param unreadable_lines: those that nobody was told of yet.
    :param last: the last event of each generation: ``commit``, ``evict``, ``restore`` or ``gone``.
    """

    exists: bool
    unreadable_lines: int
    last: Mapping[str, str]


@dataclass(frozen=True)
class Journal:
    """The journal at ``path``.

    :param files: how to write.
    """

    path: Path
    files: Files = field(default_factory=Files)

    def add(self, event: str, **fields: Any) -> str | None:
        """Append one line; a failure is a warning, since nothing depends on the journal.

        :param event: ``commit``, ``mark`` (a further reason to keep it), ``evict`` (written before it goes),
            ``restore``, ``damage``, ``gone`` (removed by somebody else) or ``unreadable`` (lines before this one).
        :return: what went wrong, or None.
        """
        try:
            self._append(event, fields)
        except OSError as error:
            text = f"The journal {self.path} could not be written: {error.strerror or error}."
            _log.warning("%s The state itself is not affected.", text)
            return text
        return None

    def begin(self, time: str) -> None:
        """The first line of a new run, the one that must be written.

        :raises OSError: it could not be.
        """
        self._append(BEGIN, {"time": time})

    def _append(self, event: str, fields: Mapping[str, Any]) -> None:
        self.files.append_line(self.path, json.dumps({"event": event, **fields}, allow_nan=False))

    def read(self) -> tuple[list[dict[str, Any]], int]:
        """All entries, oldest first, and how many lines could not be read."""
        lines = [_parsed(line) for line in self._lines()]
        return [entry for entry in lines if entry is not None], lines.count(None)

    def records(self) -> list[dict[str, Any]]:
        """What the journal tells of the generations that count: the newest line about each, oldest generation first.

        Those that were evicted, removed, damaged or set aside are not among them.
        """
        known: dict[str, dict[str, Any]] = {}
        counts: set[str] = set()
        for entry in self.read()[0]:
            event, names = entry.get("event"), _generations(entry)
            if event in ("commit", "mark"):
                known.update(dict.fromkeys(names, entry))
                counts.update(names)
            elif event in ("evict", "gone", "damage"):
                counts.difference_update(names)
            elif event == "restore":
                for source, target in _moves(entry):
                    counts.discard(source)
                    if GenerationName.parse(target) is not None:
                        counts.add(target)
        return [known[name] for name in sorted(counts & known.keys(), key=_age)]

    def find_out(self) -> JournalFindings:
        """What the journal tells to somebody who opens the run."""
        exists = False
        unreported = 0
        last: dict[str, str] = {}
        for line in self._lines():
            exists = True
            entry = _parsed(line)
            event = None if entry is None else entry.get("event")
            if entry is None:
                unreported += 1
            elif event == UNREADABLE:
                unreported = 0
            elif event in ("commit", "evict", "restore", "gone"):
                moved = [target.rpartition("/")[2] for _, target in _moves(entry)] if event == "restore" else []
                last.update({name: str(event) for name in [*_generations(entry), *moved]})
        return JournalFindings(exists, unreported, last)

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
        """Whether any readable line is the commit of a state that a run goes on from."""
        return any(entry.get("event") == "commit" and entry.get("kind") != "error" for entry in self.read()[0])

    def tells_of_the_beginning(self) -> bool:
        """Whether a readable line says that the run is new."""
        return any(entry.get("event") == BEGIN for entry in self.read()[0])


def journal_fields(manifest: Manifest) -> dict[str, Any]:
    """What a line tells of a generation."""
    reasons = manifest.reasons
    kinds = {"error": "error", "signal": "signal", "session_end": "last", "best": "best"}
    kind = next((kind for reason, kind in kinds.items() if reason in reasons), "regular")
    return {
        "time": manifest.time,
        "path": f"generations/{manifest.generation}",
        "generation": manifest.generation,
        "iteration": manifest.iteration,
        "epoch": manifest.epoch,
        "kind": kind,
        "reasons": list(reasons),
        "bytes": manifest.total_bytes,
        "average_loss": manifest.average_loss,
    }


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _generations(entry: Mapping[str, Any]) -> list[str]:
    """The generations that an entry is about; older evictions name several."""
    several = entry.get("generations")
    names = [entry.get("generation"), *(several if isinstance(several, list) else ())]
    return [name for name in names if isinstance(name, str) and GenerationName.parse(name) is not None]


def _moves(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    moves = entry.get("moves")
    pairs = moves if isinstance(moves, list) else []
    return [(str(pair[0]), str(pair[1])) for pair in pairs if isinstance(pair, list) and len(pair) == 2]


def _age(name: str) -> GenerationName:
    parsed = GenerationName.parse(name)
    assert parsed is not None
    return parsed
