"""What whoever opens a run folder to write puts in order: what an interrupted process or somebody else has left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ostinato.runs.atomic import ChecksumMismatchError, Files
from ostinato.runs.commit import STAGING_MARK, TEMPORARY_PREFIX
from ostinato.runs.eviction import TRASH_PREFIX, evict
from ostinato.runs.identity import RUN_FILE, RunIdentity, now, read_identity
from ostinato.runs.journal import JOURNAL_FILE, UNREADABLE, Journal, journal_fields
from ostinato.runs.manifest import GenerationName
from ostinato.runs.moves import INTENT_FILE, pending_moves
from ostinato.runs.retention import policy_of, to_delete
from ostinato.runs.view import DAMAGED, GENERATIONS, RunView


class Housekeeping:
    """Puts a run folder in order. Its lock must be held.

    :param run: the folder.
    :param files: how files are written.
    :param notice: given a sentence for the user about everything that was not as it should be.
    """

    def __init__(self, run: RunView, files: Files, notice: Callable[[str], None]) -> None:
        self._run = run
        self._files = files
        self._journal = Journal(run.path / JOURNAL_FILE, files)
        self._notice = notice

    def put_in_order(self, recipe: str) -> RunIdentity:
        """Finish what was begun, remove what was left over, and compare what ``run.json`` and the journal tell.

        :param recipe: recorded when the run is new.
        :return: what the run is.
        """
        self._finish_restore()
        self._remove_leftovers()
        identity = self._find_identity(recipe)
        self._compare_with_journal()
        return identity

    def _finish_restore(self) -> None:
        try:
            moves = pending_moves(self._run.path)
        except ChecksumMismatchError as error:
            aside = free_name(self._run.path / f"{INTENT_FILE}.damaged")
            self._files.rename(self._run.path / INTENT_FILE, aside)
            self._notice(f"{INTENT_FILE} {error}; it was moved to {aside.name}. The newest whole generation is used.")
            return
        if moves is not None:
            moves.carry_out(self._run.path, self._files)
            pairs = [list(pair) for pair in moves.pairs]
            self._journal.add("restore", time=now(), generation=moves.target, moves=pairs, finished_later=True)
            self._notice(f"A restore of generation {moves.target} had been interrupted; it is finished now.")

    def _remove_leftovers(self) -> None:
        for entry in list(self._run.generations_path.iterdir()):
            for prefix in (TEMPORARY_PREFIX, TRASH_PREFIX):
                name = entry.name.removeprefix(prefix).partition(STAGING_MARK)[0]
                if entry.name.startswith(prefix) and entry.is_dir() and GenerationName.parse(name) is not None:
                    try:
                        self._files.remove_tree(entry)
                    except OSError as error:
                        self._notice(f"The left-over folder {entry} could not be removed: {error.strerror or error}.")

    def _compare_with_journal(self) -> None:
        """Tell what the journal and the generations do not agree on, and finish an eviction that was cut off."""
        found = self._journal.find_out()
        here = {str(name) for name in self._run.names()}
        if here and not found.exists:
            self._notice(
                f"{JOURNAL_FILE} is missing or empty; what is in {GENERATIONS}/ is used, and it is begun anew."
            )
            for manifest in self._run.scan().manifests:
                self._journal.add("commit", **journal_fields(manifest))
            return
        untold = here - found.last.keys()
        if untold:  # the process ended between a commit and its line
            for manifest in self._run.scan().manifests:
                if manifest.generation in untold:
                    self._journal.add("commit", **journal_fields(manifest))
        if found.unreadable_lines:
            self._notice(f"{JOURNAL_FILE} has {found.unreadable_lines} unreadable line(s); no state is lost with them.")
            self._journal.add(UNREADABLE, time=now(), lines=found.unreadable_lines)
        elsewhere = {str(name) for names in self._run.set_aside().values() for name in names}
        damaged = {path.name.partition(".")[0] for path in self._run.generations_path.glob(f"{DAMAGED}/*")}
        gone = [
            name
            for name, event in found.last.items()
            if event not in ("evict", "gone") and name not in here | elsewhere | damaged
        ]
        if gone:
            self._notice(f"Generation(s) {', '.join(gone)} of {self._run.path} were removed by somebody else.")
            for name in gone:
                self._journal.add("gone", time=now(), generation=name)
        marked = {name for name in here if found.last.get(name) == "evict"}
        if marked:
            manifests = self._run.scan().manifests
            unwanted = to_delete(manifests, policy_of(manifests))
            evict(self._files, self._run.generations_path, [name for name in unwanted if name in marked])

    def _find_identity(self, recipe: str) -> RunIdentity:
        if not (self._run.path / RUN_FILE).exists() and not self._run.names() and not self._journal.read()[0]:
            # Before run.json, so that a run that has lost its journal never looks new. Of a line that a power cut has
            # spoiled nothing can be read, and run.json is not there yet: then it is written again.
            self._journal.begin(now())
        manifests = self._run.scan().manifests
        recorded = RunIdentity.from_manifest(manifests[-1].run) if manifests else None
        try:
            identity = read_identity(self._run.path)
        except ChecksumMismatchError as error:
            path = self._run.path / RUN_FILE
            if path.exists():
                aside = free_name(path.with_name(f"{RUN_FILE}.damaged"))
                self._files.rename(path, aside)
                self._notice(f"{RUN_FILE} {error}; it was moved to {aside.name} and written anew.")
            elif recorded is not None:
                self._notice(f"{RUN_FILE} {error}; it was written anew.")
            identity = recorded or RunIdentity.new(recipe)
            identity.write(self._run.path, self._files)
        return identity


def free_name(path: Path) -> Path:
    """``path``, or where something is there already, the first free name after it."""
    candidate, number = path, 1
    while candidate.exists() or candidate.is_symlink():
        number += 1
        candidate = path.with_name(f"{path.name}.{number}")
    return candidate
