"""One rank's part of a generation: written beside the generation that rank 0 writes, and taken in by it.

Nothing but the run folder stands between the writer threads of the ranks, so that none of them uses a collective while
training goes on. A rank writes its files to a temporary folder of its own, flushes and reads them back, and then puts a
*receipt* there, in one atomic step: which save it is of, and the files, or what went wrong. Rank 0 waits for the
receipts of all others, moves the files beside its own, writes the manifest and commits.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.errors import SaveError
from ostinato.runs.atomic import ChecksumMismatchError, FileRecord, Files, read_bounded
from ostinato.runs.commit import STAGING_MARK, TEMPORARY_PREFIX, PackedContent, write_files
from ostinato.runs.generation_files import Damage, DamagedGenerationError
from ostinato.runs.manifest import GenerationName
from ostinato.runs.part_names import PartName

RECEIPT_FILE = "receipt.json"
_MAX_BYTES = 16 * 1024 * 1024
_FIRST_LOOK = 0.01
_LONGEST_LOOK = 0.25


@dataclass(frozen=True)
class Ticket:
    """What the ranks agree on before they save: which save it is.

    :param name: of the generation.
    :param key: a text that no other save has.
    """

    name: GenerationName
    key: str


def staging_folder(generations: Path, ticket: Ticket, rank: int) -> Path:
    """Where a rank writes its part."""
    return generations / f"{TEMPORARY_PREFIX}{ticket.name}{STAGING_MARK}{rank:05d}"


def write_part(files: Files, generations: Path, ticket: Ticket, packed: PackedContent) -> None:
    """Write this rank's part, read it back, and leave the receipt.

    :raises OSError: the receipt says so too, as far as that is possible; nothing else of the part is left.
    :raises DamagedGenerationError: what was read back is not what was written; likewise.
    """
    folder = staging_folder(generations, ticket, packed.rank)
    try:
        with contextlib.suppress(FileNotFoundError):
            files.remove_tree(folder)  # left by a save of this iteration that failed
        files.make_folder(folder)
        records = write_files(files, folder, packed)
        for name, record in records.items():
            try:
                files.check(folder / name, record)
            except ChecksumMismatchError as error:
                raise DamagedGenerationError(Damage(str(ticket.name), name, str(error))) from error
        files.flush_folder(folder)
    except BaseException as error:
        # First make room: on a full disk the receipt would find none.
        with contextlib.suppress(OSError):
            files.remove_tree(folder)
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        leave_refusal(files, generations, ticket, packed.rank, said)
        raise
    content = {name: {"bytes": record.bytes, "sha256": record.sha256} for name, record in records.items()}
    files.replace(folder / RECEIPT_FILE, json.dumps({"save": ticket.key, "files": content, "error": None}).encode())


def leave_refusal(files: Files, generations: Path, ticket: Ticket, rank: int, error: str) -> None:
    """Tell rank 0 that no part of this rank will come. If not even that can be written, rank 0 finds out by time."""
    folder = staging_folder(generations, ticket, rank)
    with contextlib.suppress(OSError):
        files.make_folder(folder)
        receipt = {"save": ticket.key, "files": {}, "error": error}
        files.replace(folder / RECEIPT_FILE, json.dumps(receipt).encode())


class OtherParts:
    """Rank 0's view of what the other ranks write.

    :param patience: seconds without any progress after which a rank is given up.
    """

    def __init__(self, files: Files, generations: Path, world_size: int, patience: float) -> None:
        self._files = files
        self._generations = generations
        self._world_size = world_size
        self.patience = patience
        self._refused: dict[int, str] = {}
        self._changed = threading.Event()

    def expect_all(self) -> None:
        """A new save begins. Not while another one is under way."""
        self._refused.clear()

    def refuse(self, rank: int, what: str) -> None:
        """The part of this rank will not come, as it has said in another way; callable from any thread."""
        self._refused[rank] = what
        self._changed.set()

    def hurry(self, patience: float) -> None:
        """Be less patient from now on, also in a wait that is going on; callable from any thread."""
        self.patience = min(self.patience, patience)
        self._changed.set()

    def take_in(self, ticket: Ticket, iteration: int, target: Path) -> dict[str, FileRecord]:
        """Wait for all parts and move their files into ``target``.

        :raises SaveError: a rank could not write its part, or did not in time.
        """
        folders = {rank: staging_folder(self._generations, ticket, rank) for rank in range(1, self._world_size)}
        try:
            records: dict[str, FileRecord] = {}
            for rank, receipt in self._wait(ticket, iteration, folders).items():
                for name, entry in receipt.items():
                    record = FileRecord(int(entry["bytes"]), str(entry["sha256"]))
                    part = PartName.parse(name)
                    if part is None or part.index != rank:
                        raise self._failed(iteration, f"rank {rank} has written {name!r}, which is no file of its own")
                    self._files.rename(folders[rank] / name, target / name)
                    if (size := (target / name).stat().st_size) != record.bytes:
                        raise self._failed(
                            iteration, f"{name} of rank {rank} has {size:,} bytes instead of {record.bytes:,}"
                        )
                    records[name] = record
        finally:
            for folder in folders.values():
                with contextlib.suppress(OSError):
                    self._files.remove_tree(folder)
        return records

    def _wait(self, ticket: Ticket, iteration: int, folders: Mapping[int, Path]) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        pause, seen, since = _FIRST_LOOK, -1, time.monotonic()
        while True:
            for rank, folder in folders.items():
                receipt = _read_receipt(folder, ticket) if rank not in found else None
                refusal = self._refused.get(rank) if receipt is None else receipt["error"]
                if refusal is not None:
                    raise self._failed(iteration, f"rank {rank} could not write its part: {refusal}")
                if receipt is not None:
                    found[rank] = dict(receipt["files"])
            if len(found) == len(folders):
                return found
            progress = len(found) + sum(_bytes_in(folder) for rank, folder in folders.items() if rank not in found)
            if progress != seen:
                seen, since = progress, time.monotonic()
            elif time.monotonic() - since >= self.patience:
                missing = ", ".join(str(rank) for rank in folders if rank not in found)
                raise self._failed(
                    iteration,
                    f"nothing has come from rank(s) {missing} for {self.patience:.0f} seconds",
                    "A rank may have ended, or its disk may be stuck.",
                )
            if self._changed.wait(pause):
                self._changed.clear()
            pause = min(pause * 2, _LONGEST_LOOK)

    def _failed(self, iteration: int, what: str, advice: str = "") -> SaveError:
        folder = self._generations.parent
        return SaveError(
            f"The state at iteration {iteration:,} could not be saved in {folder}: {what}.",
            advice=f"{advice} The generations before are untouched.".strip(),
            folder=folder,
            iteration=iteration,
        )


def _read_receipt(folder: Path, ticket: Ticket) -> dict[str, Any] | None:
    """The receipt of this save; None while it is not there."""
    try:
        receipt = json.loads(read_bounded(folder / RECEIPT_FILE, _MAX_BYTES).decode())
    except (OSError, ChecksumMismatchError, ValueError):
        return None
    is_ours = isinstance(receipt, dict) and receipt.get("save") == ticket.key
    return receipt if is_ours else None  # another one was left by a save that failed


def _bytes_in(folder: Path) -> int:
    try:
        return sum(1 + entry.stat().st_size for entry in folder.iterdir())
    except OSError:
        return 0
