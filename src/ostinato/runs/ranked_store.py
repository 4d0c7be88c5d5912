"""A run folder that several ranks save to and load from together.

Rank 0 holds the lock, decides what to load, writes what is common, commits, and removes what is old. The others read
what it decided, and each writes a part of its own; see :mod:`ostinato.runs.rank_part`.

Every method but those that say so is a collective: all ranks call it, from the thread that trains, in the same order.
What goes wrong on one rank is raised, or told as the result of a save, on all of them.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from ostinato.dist import Group
from ostinato.errors import OstinatoError, RunError, SaveError, StateError
from ostinato.runs.atomic import ChecksumMismatchError, FileRecord
from ostinato.runs.commit import PackedContent
from ostinato.runs.content import GenerationContent, LoadedGeneration
from ostinato.runs.folder import Commit, RunFolder, refuse_non_finite
from ostinato.runs.generation_files import DamagedGenerationError
from ostinato.runs.identity import read_identity
from ostinato.runs.rank_part import OtherParts, Ticket, leave_refusal, staging_folder, write_part
from ostinato.runs.save_errors import explained
from ostinato.runs.verification import read_generation
from ostinato.runs.writer import GenerationWriter, SaveResult

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

PATIENCE = 120.0
"""Seconds without any progress after which rank 0 gives up a save for which another rank writes its part."""

PATIENCE_AFTER_FAILURE = 10.0
"""The same once a rank has failed: parts that are on their way are still worth waiting for, a dead rank's is not."""


class RankedStore:
    """Loads from a run folder and saves to it in the background, together with the other ranks.

    The folder lies on a disk that all ranks share.

    :param run: the same folder on all ranks. It is opened and closed here, on rank 0.
    :param group: the ranks.
    :param patience: see :data:`PATIENCE`; at most half the time-out of the group, whose collectives wait meanwhile.
    """

    def __init__(self, run: RunFolder, group: Group, *, patience: float = PATIENCE) -> None:
        self.run = run
        self.group = group
        patience = min(patience, getattr(group, "timeout", math.inf) / 2)
        self._parts = OtherParts(run.files, run.generations_path, group.size, patience)
        self._share = _Share(run, group, self._parts)
        self.writer = GenerationWriter(self._share)
        self._is_hurrying = False

    def open(self) -> None:
        """Take the folder's lock on rank 0, make sure that all ranks see the same folder, start the writers.

        :raises RunLockedError: somebody else trains in this folder.
        :raises RunError: it cannot be used, or a rank sees another folder.
        """

        def begin() -> str:
            self.run.open()
            return self.run.identity.id

        run_id = self._on_rank_0(begin)
        seen = self.group.gather(_sees(self.run.path, run_id))
        blind = [rank for rank, sees in enumerate(seen) if not sees]
        if blind:
            self.run.close()
            raise RunError(
                f"Rank(s) {', '.join(map(str, blind))} do not see the run folder {self.run.path} of rank 0.",
                advice="Put the run folder on a disk that all machines share, under the same path.",
                folder=self.run.path,
                ranks=blind,
            )
        self.writer.open()

    def load(self, which: int | str | Path | None = None) -> LoadedGeneration | None:
        """The newest state that is whole on all ranks, or None for a new run; or one named generation.

        Files that were written in parts are checked in shares: each rank reads every byte of some of them.
        """
        if which is not None:
            folder = self._on_rank_0(lambda: self.run.go_back(which))
            try:
                loaded: LoadedGeneration | None = self._read_together(folder)
            except DamagedGenerationError as error:
                raise self.run.damaged(error.damage) from error
            if self.group.rank == 0 and loaded is not None:
                self.run.take_over(loaded)
        elif self.group.rank == 0:
            loaded, error = None, None
            try:
                loaded = self.run.load_newest(self._lead)
            except OstinatoError as raised:
                error = raised
            self.group.broadcast((None, error))
            if error is not None:
                raise error
        else:
            loaded = self._follow()
        if self.group.rank == 0 and self.run.session is None:
            self.run.begin_session(start_iteration=loaded.iteration if loaded else 0)
        return loaded

    def _lead(self, folder: Path) -> LoadedGeneration:
        self.group.broadcast((folder.name, None))
        return self._read_together(folder)

    def _follow(self) -> LoadedGeneration | None:
        loaded: LoadedGeneration | None = None
        while True:
            name, error = self.group.broadcast((None, None))
            if error is not None:
                raise error
            if name is None:
                return loaded
            loaded = None  # not two of them at once
            with contextlib.suppress(DamagedGenerationError, OSError):  # rank 0 decides what comes of it
                loaded = self._read_together(self.run.generations_path / name)

    def _read_together(self, folder: Path) -> LoadedGeneration:
        """A generation that every rank has read and checked its share of.

        :raises DamagedGenerationError: on all ranks, when one has found damage.
        :raises OSError: on all ranks, when one could not read.
        """
        loaded: LoadedGeneration | None = None
        problem: Exception | None = None
        try:
            loaded = read_generation(folder, self.group.rank, self.group.size)
        except (DamagedGenerationError, OSError) as error:
            problem = error
        damage = problem.damage if isinstance(problem, DamagedGenerationError) else None
        unread = (problem.errno, problem.strerror, problem.filename) if isinstance(problem, OSError) else None
        for found, failed in self.group.gather((damage, unread)):
            if found is not None:
                raise DamagedGenerationError(found)
            if failed is not None:
                raise OSError(*failed)
        assert loaded is not None
        return loaded

    def prepare(self, state: Iterable[Tensor]) -> None:
        """See :meth:`GenerationWriter.prepare`. No collective."""
        self.writer.prepare(state)

    def submit(self, content: GenerationContent) -> None:
        """Take copies of a state on all ranks, and save it in the background.

        :raises ArgumentTypeError: this rank's state holds something that cannot be saved.
        :raises SaveError: that of another rank does.
        """
        self.writer.wait()
        packed, problem = None, None
        try:
            packed = self._share.pack(content)
        except OstinatoError as error:
            problem = error
        ticket = Ticket(self.run.next_name(content), uuid.uuid4().hex) if self.group.rank == 0 else None
        answers = self.group.gather((ticket, None if problem is None else problem.what))
        if problem is not None:
            raise problem
        for rank, (_, what) in enumerate(answers):
            if what is not None:
                raise SaveError(
                    f"The state at iteration {content.iteration:,} was not saved, because of rank {rank}: {what}",
                    folder=self.run.path,
                    iteration=content.iteration,
                )
        assert packed is not None
        self._parts.expect_all()
        self._share.ticket = answers[0][0]
        self.writer.submit_packed(packed)

    def submit_alone(self, content: GenerationContent) -> None:
        """Save a state of this rank alone, if it is rank 0 and no other holds a part of it. No collective.

        :raises ArgumentTypeError: it holds something that cannot be saved.
        """
        if self.group.rank != 0:
            return
        self.hurry()
        self.writer.wait()
        packed = self._share.pack(content)
        for file, ranges in packed.row_ranges.items():
            for table, (_, total) in ranges.items():
                if len(packed.tensors[file, table]) != total:
                    _log.warning(
                        "The state in which the run failed, at iteration %s, was not saved: it is cut over the ranks "
                        "(%s is, for one), and after an error rank 0 cannot ask the others for their parts. What was "
                        "saved before is untouched, and the run goes on from there.",
                        f"{content.iteration:,}",
                        table,
                    )
                    return
        self._share.ticket = None
        self.writer.submit_packed(packed)

    def poll(self) -> list[SaveResult]:
        """Nothing: how a save ended is told to all ranks at once, by :meth:`flush`. No collective.

        After a failure nothing is told to all any more, and rank 0 learns it here.
        """
        return self.writer.poll() if self._is_hurrying and self.group.rank == 0 else []

    def settle(self) -> None:
        """Wait until this rank's part of what is under way has ended. No collective."""
        self.writer.wait()

    def flush(self) -> list[SaveResult]:
        """Wait until everything submitted is on the disk or has failed; how it ended, the same on all ranks."""
        results = self.writer.flush() if self.group.rank else []
        failures = [result.error.what for result in results if result.error is not None]
        # A disk that takes no part may not take a receipt that says so either. Rank 0 alone knows how a save ended.
        for rank, failed in enumerate(self.group.gather(failures)):
            for what in failed:
                self._parts.refuse(rank, what)
        return self.group.broadcast(results if self.group.rank else self.writer.flush())

    def add_reasons(self, generation: str, *reasons: str) -> None:
        """See :meth:`RunFolder.add_reasons`."""
        self._on_rank_0(lambda: self.run.add_reasons(generation, *reasons) and None)

    def hurry(self) -> None:
        """A rank has failed: wait only a short time for parts of others. No collective."""
        self._is_hurrying = True
        self._parts.hurry(PATIENCE_AFTER_FAILURE)

    def close(self) -> None:
        """Finish what is under way, stop the writer, give the lock back. No collective."""
        self.writer.close()
        self.run.close()

    def _on_rank_0(self, call: Callable[[], _Result]) -> _Result:
        """Do something on rank 0; its result or its error, on all ranks."""
        result: Any = None
        error: OstinatoError | None = None
        unexpected: BaseException | None = None
        if self.group.rank == 0:
            try:
                result = call()
            except OstinatoError as raised:
                error = raised
            except Exception as raised:
                unexpected = raised
                error = StateError(f"Rank 0 failed with {type(raised).__name__}: {raised}")
        result, error = self.group.broadcast((result, error))
        if unexpected is not None:
            raise unexpected
        if error is not None:
            raise error
        return result


class _Share:
    """What a rank's writer does with a packed content: rank 0 commits, the others write their part."""

    def __init__(self, run: RunFolder, group: Group, parts: OtherParts) -> None:
        self.path = run.path
        self.ticket: Ticket | None = None
        """Of the save that comes next; None: of this rank alone."""
        self._before: Ticket | None = None
        self._run = run
        self._rank = group.rank
        self._size = group.size
        self._parts = parts

    def pack(self, content: GenerationContent) -> PackedContent:
        return self._run.pack(content, self._rank, self._size)

    def commit(self, packed: PackedContent) -> Commit | None:
        ticket, before = self.ticket, self._before
        self._before = ticket
        if self._rank == 0:
            return self._run.commit(packed, None if ticket is None else self._taking_in(ticket, packed))
        assert ticket is not None
        if before is not None:  # of a save that failed elsewhere before this rank's part was taken in
            with contextlib.suppress(OSError):
                self._run.files.remove_tree(staging_folder(self._run.generations_path, before, self._rank))
        try:
            refuse_non_finite(packed, self._run)
        except SaveError as error:
            leave_refusal(self._run.files, self._run.generations_path, ticket, self._rank, error.what)
            raise
        with explained(self.path, packed.content.iteration):
            write_part(self._run.files, self._run.generations_path, ticket, packed)
        return None

    def _taking_in(self, ticket: Ticket, packed: PackedContent) -> Callable[[Path], dict[str, FileRecord]]:
        return lambda folder: self._parts.take_in(ticket, packed.content.iteration, folder)


def _sees(folder: Path, run_id: str) -> bool:
    """Whether this rank sees the run folder that rank 0 has opened. A shared disk may show it a moment later."""
    for _ in range(10):
        with contextlib.suppress(ChecksumMismatchError, OSError, RunError):
            if read_identity(folder).id == run_id:
                return True
        time.sleep(0.2)
    return False
