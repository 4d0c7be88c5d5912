"""A run folder: the one place where a run's life is kept, and the promises about it."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ostinato.errors import ArgumentValueError, BadInputError, DamagedRunError, RunError, SaveError, StateError
from ostinato.runs.atomic import ChecksumMismatchError, FileRecord, Files
from ostinato.runs.commit import (
    PackedContent,
    non_finite_names,
    pack,
    write_generation,
)
from ostinato.runs.content import GenerationContent, LoadedGeneration
from ostinato.runs.eviction import evict
from ostinato.runs.generation_files import (
    OPTIMIZER_FILE,
    Damage,
    DamagedGenerationError,
    read_manifest_of,
)
from ostinato.runs.housekeeping import Housekeeping, free_name
from ostinato.runs.identity import RunIdentity, now
from ostinato.runs.journal import JOURNAL_FILE, Journal, journal_fields
from ostinato.runs.lock import RunLock
from ostinato.runs.manifest import MANIFEST_FILE, GenerationName, Manifest, merge_reasons
from ostinato.runs.moves import SET_ASIDE, plan_restore
from ostinato.runs.retention import RetentionPolicy, to_delete
from ostinato.runs.save_errors import explained
from ostinato.runs.sessions import Session, next_number, sessions_at_save
from ostinato.runs.verification import read_generation, verify_generation
from ostinato.runs.view import DAMAGED, GENERATIONS, RunView

_log = logging.getLogger(__name__)

CONFIG_FILE = "config.yaml"

TakeIn = Callable[[Path], Mapping[str, FileRecord]]
"""Puts files that others have written into a folder."""


@dataclass(frozen=True)
class Commit:
    """What a save did.

    :param manifest: of the new generation.
    :param deleted: names of the generations that retention removed.
    :param warnings: clean-up that failed, in sentences.
    """

    manifest: Manifest
    deleted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass
class RunFolder(RunView):
    """A run folder.

    Reading (all of :class:`RunView`, :meth:`verify`, :meth:`read`) needs nothing. Everything that writes needs
    :meth:`open`, which takes the lock. Constructing touches no disk.

    :param path: the folder.
    :param files: how files are written; for tests and for odd disks.
    :param policy: which generations are kept.
    """

    files: Files = field(default_factory=Files)
    policy: RetentionPolicy = field(default_factory=RetentionPolicy)
    notices: list[str] = field(default_factory=list, init=False)
    """Sentences for the user about what opening and loading found: a lock taken over, damage, a repair."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._lock = RunLock(self.path)
        self._mutex = threading.RLock()  # the writer thread commits while the trainer's thread looks
        self._identity: RunIdentity | None = None
        self._sessions: tuple[Session, ...] = ()
        self._session: Session | None = None
        self._options: Mapping[str, Any] = {}

    # --- opening and closing ------------------------------------------------------------------------------------------

    @property
    def journal(self) -> Journal:
        """The journal."""
        return Journal(self.path / JOURNAL_FILE, self.files)

    @property
    def is_open(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock.is_held

    @property
    def identity(self) -> RunIdentity:
        """What this run is.

        :raises StateError: the folder was not opened.
        """
        if self._identity is None:
            raise StateError("The run folder must be opened first.")
        return self._identity

    def open(self, *, recipe: str = "") -> RunFolder:
        """Make the folder if there is none, take its lock, and tidy up what an interrupted process left.

        What is found on the way is told in :attr:`notices`.

        :param recipe: recorded when the run is new.
        :raises RunLockedError: somebody else trains here.
        :raises RunError: the folder cannot be made, or it or a generation in it is of a newer format.
        """
        try:
            new = [path for path in (self.path, *self.path.parents) if not path.exists()]
            self.files.make_folder(self.path)
            for path in new:
                # Without this a power cut could take the folder away with everything that was flushed in it.
                self.files.flush_folder(path.parent)
            taken = self._lock.acquire()
        except OSError as error:
            raise RunError(
                f"The run folder {self.path} cannot be used: {error.strerror or error}.",
                advice="Choose a folder in which you may write.",
                folder=self.path,
            ) from error
        try:
            if taken:
                self._notice(taken)
            self.files.make_folder(self.generations_path)
            self._identity = Housekeeping(self, self.files, self._notice).put_in_order(recipe)
        except OSError as error:
            self.close()
            raise RunError(
                f"The run folder {self.path} cannot be prepared: {error.strerror or error} ({error.filename}).",
                advice="Free some space or correct the permissions, and start again.",
                folder=self.path,
            ) from error
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Give the lock back. May be called again."""
        self._lock.release()

    def __enter__(self) -> RunFolder:
        return self if self.is_open else self.open()

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if not self.is_open:
            raise StateError(f"The run folder {self.path} must be opened before it is written to.")

    def _notice(self, text: str) -> None:
        self.notices.append(text)
        _log.warning("%s", text)

    # --- reading ------------------------------------------------------------------------------------------------------

    def verify(self) -> dict[str, list[Damage]]:
        """Read every byte of every generation: what is wrong, by name, oldest first; an empty list means whole."""
        return {str(name): verify_generation(self.generations_path / str(name)) for name in self.names()}

    def read(self, which: int | str, read: Callable[[Path], LoadedGeneration] = read_generation) -> LoadedGeneration:
        """One generation, verified while it is read. Those that a restore set aside can be read too.

        :param read: reads and verifies the generation in a folder.
        :raises BadInputError: there is none of this name.
        :raises DamagedRunError: it is not whole.
        """
        name = self.find(which)
        try:
            return read(self.locate(name))
        except DamagedGenerationError as error:
            raise self.damaged(error.damage) from error

    def load_newest(self, read: Callable[[Path], LoadedGeneration] = read_generation) -> LoadedGeneration | None:
        """The newest whole state, or None when this run has none yet.

        A damaged newest generation is named in :attr:`notices`, moved to ``generations/damaged/`` when the folder is
        open, and the one before is used. States in which an error ended the run are never chosen.

        :param read: reads and verifies the generation in a folder.
        :raises DamagedRunError: there is or was state, and none of it can be read whole.
        :raises RunError: a generation cannot be read for a reason that says nothing about its content, or a newer
            program has written it.
        """
        damage: list[Damage] = []
        for name in reversed([name for name in self.names() if not name.error]):
            try:
                loaded = read(self.generations_path / str(name))
            except DamagedGenerationError as error:
                damage.append(error.damage)
                continue
            except OSError as error:
                raise RunError(
                    f"Generation {name} of {self.path} cannot be read: {error.strerror or error} ({error.filename}).",
                    advice="Correct that and start again; going back to an older state would lose what is in it.",
                    folder=self.path,
                ) from error
            for found in damage:
                self._put_aside(found, loaded.manifest.generation)
            if self.is_open:
                self._sessions = loaded.sessions
            return loaded
        lost = "" if damage else self.lost_state()
        if damage or lost:
            raise self._all_damaged(damage, lost)
        return None

    def load(self, which: int | str | Path) -> LoadedGeneration:
        """Go back to one generation and load it, see :meth:`go_back`."""
        folder = self.go_back(which)
        try:
            loaded = read_generation(folder)
        except DamagedGenerationError as error:
            raise self.damaged(error.damage) from error
        self.take_over(loaded)
        return loaded

    def go_back(self, which: int | str | Path) -> Path:
        """Make one generation that from which the run goes on; what is newer is set aside and named, see
        :meth:`restore`.

        :param which: its iteration, its name or its folder. A new run may also begin with a generation of another run,
            given by its folder.
        :return: the folder to read it from.
        :raises BadInputError: there is none, or it is another run's and this one has generations of its own.
        """
        name: int | str = which if isinstance(which, int) else str(which)
        if isinstance(name, str) and self._is_path(name):
            path = Path(name)
            if self.generations_path.resolve() not in path.resolve().parents:
                return self._generation_elsewhere(path)
            name = path.name
        before = self.names()
        manifest = self.restore(name)
        aside = [str(found) for found in before if found not in self.names()]
        if aside:
            self._notice(
                f"Going on from generation {manifest.generation}, as asked for. Newer ones were set aside below "
                f"{GENERATIONS}/{SET_ASIDE}, not deleted: {', '.join(aside)}."
            )
        return self.generations_path / manifest.generation

    def take_over(self, loaded: LoadedGeneration) -> None:
        """Go on with the sessions of a loaded generation."""
        self._sessions = loaded.sessions

    @staticmethod
    def _is_path(text: str) -> bool:
        return any(separator in text for separator in ("/", os.sep)) or (
            GenerationName.parse(text) is None and (Path(text) / MANIFEST_FILE).is_file()
        )

    def _generation_elsewhere(self, path: Path) -> Path:
        if self.names():
            raise BadInputError(
                f"{path} is no generation of the run {self.path}, which has generations of its own.",
                advice="Give the folder of a generation of another run only to a run that is new.",
                folder=self.path,
            )
        try:
            read_manifest_of(path)
        except DamagedGenerationError as error:
            raise BadInputError(
                f"{path} is no generation: {error.damage.file} {error.damage.what}.",
                advice="Give an iteration, a generation's name, or the folder of a generation.",
                folder=self.path,
            ) from error
        return path

    def damaged(self, damage: Damage) -> DamagedRunError:
        """The error that says of one generation that it is not whole."""
        return DamagedRunError(
            f"Generation {damage.generation} of {self.path} is damaged: {damage}.",
            advice="Choose another one; 'ostinato runs show' lists them.",
            folder=self.path,
            damage=[damage],
        )

    def _all_damaged(self, damage: Sequence[Damage], lost: str) -> DamagedRunError:
        lines = "\n".join(f"  {found}." for found in damage)
        return DamagedRunError(
            lost or f"The run {self.path} holds {len(damage)} generation(s), and none of them is whole:\n{lines}",
            advice="Nothing was changed. Put the files back from a backup, or look into generations/damaged and "
            "generations/set-aside; to start over, choose an empty folder.",
            folder=self.path,
            damage=list(damage),
        )

    def _put_aside(self, damage: Damage, used: str) -> None:
        if not self.is_open:
            self._notice(f"{damage}. Generation {used} is the newest whole one.")
            return
        source = self.generations_path / damage.generation
        target = free_name(self.generations_path / DAMAGED / damage.generation)
        try:
            self.files.make_folder(target.parent)
            self.files.rename(source, target)
            self.files.flush_folder(target.parent)
            self.files.flush_folder(self.generations_path)
        except OSError as error:
            raise RunError(
                f"{damage}, and it could not be moved aside: {error.strerror or error}.",
                advice=f"Move {source} somewhere else and start again.",
                folder=self.path,
            ) from error
        place = target.relative_to(self.path)
        self.journal.add("damage", time=now(), generation=damage.generation, what=str(damage), kept=str(place))
        self._notice(f"{damage}. Generation {used} is used instead; the damaged one is kept in {place}.")

    # --- sessions and options -----------------------------------------------------------------------------------------

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions before this one, as the loaded generation tells."""
        return self._sessions

    @property
    def session(self) -> Session | None:
        """The running session."""
        return self._session

    def begin_session(
        self,
        *,
        start_iteration: int,
        batch_size: int = 0,
        options: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Session:
        """Open a session; call it after :meth:`load_newest`.

        :param start_iteration: completed updates of the run at this moment.
        :param batch_size: samples in one update.
        :param options: the updatable options, by dotted path.
        :param config: all effective options, nested; also kept as the options of the run.
        """
        self._session = Session(
            number=next_number(self._sessions),
            started=now(),
            start_iteration=start_iteration,
            batch_size=batch_size,
            options=dict(options or {}),
            config=dict(config or {}),
        )
        self._options = dict(config or {})
        return self._session

    def write_config(self, text: str) -> None:
        """Write ``config.yaml``, the copy of the options for people."""
        self._require_open()
        self.files.replace(self.path / CONFIG_FILE, text.encode())

    # --- saving -------------------------------------------------------------------------------------------------------

    def pack(self, content: GenerationContent, rank: int = 0, world_size: int = 1) -> PackedContent:
        """Make a content ready for :meth:`commit`, in the moment in which it is true. Copies no tensor.

        :param rank: with ``world_size``: of the ranks that save together.
        :raises ArgumentTypeError: it holds something that cannot be saved.
        """
        sessions = sessions_at_save(self._sessions, self._session, content.iteration)
        return pack(content, sessions=sessions, options=self._options, time=now(), rank=rank, world_size=world_size)

    def next_name(self, content: GenerationContent) -> GenerationName:
        """The name that the next generation with this content gets."""
        return self._free_generation(content.iteration, "error" in content.reasons)

    def commit(self, packed: PackedContent, take_in: TakeIn | None = None) -> Commit:
        """Write one generation, read it back, and remove what the policy no longer wants.

        When a regular generation of this iteration exists, the new one gets a second name and takes its place; nothing
        committed is ever written over.

        :param take_in: puts the files of the other ranks into the folder it is given, and tells what they are. Each of
            these ranks has read back its own.
        :raises SaveError: it cannot be relied on; the generations before are as they were.
        """
        self._require_open()
        with self._mutex:
            content = packed.content
            average = content.average_loss
            if average is not None and not math.isfinite(average):
                average = None  # JSON has no such number
            error_state = "error" in content.reasons
            with explained(self.path, content.iteration):
                if not error_state:
                    refuse_non_finite(packed, self)
                scan = self.scan()
                regular = [m for m in scan.manifests if not m.name.error]
                optimizer_from = _with_optimizer(regular) if packed.keeps_optimizer else None
                if OPTIMIZER_FILE in packed.documents:
                    optimizer_iteration = content.iteration
                else:
                    optimizer_iteration = optimizer_from.optimizer_iteration if optimizer_from else None
                manifest = Manifest(
                    generation=str(self._free_generation(content.iteration, error_state)),
                    iteration=content.iteration,
                    reasons=merge_reasons(content.reasons),
                    epoch=content.epoch,
                    time=now(),
                    run=self.identity.to_dict(),
                    parent=regular[-1].generation if regular else None,
                    average_loss=average,
                    average_count=content.average_count,
                    loss_definition=content.bar.definition,
                    lowest_average=content.bar.lowest,
                    optimizer_iteration=optimizer_iteration,
                    world_size=packed.world_size,
                    policy=asdict(self.policy),
                )
                for replaced in () if error_state else [m for m in regular if m.iteration == content.iteration]:
                    manifest = _in_place_of(replaced, manifest)
                taken: dict[str, FileRecord] = {}

                def keep_in_mind(folder: Path) -> Mapping[str, FileRecord]:
                    taken.update({} if take_in is None else take_in(folder))
                    return taken

                manifest = write_generation(
                    self.files, self.generations_path, packed, manifest, optimizer_from, keep_in_mind
                )
                self._read_back(manifest, read_by_others=taken)
            warnings = [self.journal.add("commit", **journal_fields(manifest))]
            deleted, failures = self._apply_policy([*scan.manifests, manifest])
            return Commit(manifest, tuple(deleted), tuple(text for text in [*warnings, *failures] if text))

    def add_reasons(self, generation: str, *reasons: str) -> Manifest:
        """Give a committed generation further reasons to be kept, in one atomic step.

        :raises SaveError: it is not whole, or could not be written; it is as it was.
        """
        self._require_open()
        with self._mutex:
            folder = self.generations_path / generation
            name = GenerationName.parse(generation)
            with explained(self.path, name.iteration if name else 0):
                manifest = read_manifest_of(folder)
                updated = manifest.with_reasons(*reasons)
                if updated != manifest:
                    self.files.replace(folder / MANIFEST_FILE, updated.to_bytes())
            if updated != manifest:
                self.journal.add("mark", **journal_fields(updated))
            return updated

    def _free_generation(self, iteration: int, error: bool) -> GenerationName:
        # Above all others of this iteration, so that it counts as the newest of them, also when a lower one is free.
        others = [name.version for name in self.names() if (name.iteration, name.error) == (iteration, error)]
        version = max(others, default=0) + 1
        while True:
            name = GenerationName(iteration, version, error)
            path = self.generations_path / str(name)
            if not path.exists() and not path.is_symlink():
                return name
            version += 1

    def _read_back(self, manifest: Manifest, read_by_others: Collection[str]) -> None:
        folder = self.generations_path / manifest.generation
        problem: Damage | None = None
        try:
            stored = read_manifest_of(folder)
            if stored != manifest:
                problem = Damage(manifest.generation, MANIFEST_FILE, "is not what was written")
        except DamagedGenerationError as error:
            problem = error.damage
        for name, record in manifest.files.items():
            if name in read_by_others:
                continue
            try:
                self.files.check(folder / name, record)
            except ChecksumMismatchError as error:
                problem = Damage(manifest.generation, name, str(error))
        if problem is not None:
            with contextlib.suppress(OSError, RunError):
                self._put_aside(problem, manifest.parent or "before")
            raise SaveError(
                f"The save at iteration {manifest.iteration:,} was read back, and {problem}.",
                advice="The disk or the memory of this machine may be failing. The generation before is untouched.",
                folder=self.path,
                iteration=manifest.iteration,
            )

    def _apply_policy(self, manifests: Sequence[Manifest]) -> tuple[list[str], list[str]]:
        unwanted = to_delete(manifests, self.policy)
        by_name = {manifest.generation: manifest for manifest in manifests}
        for name in unwanted:  # told before it goes, so that a generation that is gone without a word was lost
            self.journal.add("evict", **{**journal_fields(by_name[name]), "time": now(), "evicted": True})
        return evict(self.files, self.generations_path, unwanted)

    # --- restoring ----------------------------------------------------------------------------------------------------

    def restore(self, which: int | str) -> Manifest:
        """Make an older generation (or one that an earlier restore set aside) the newest one.

        It is verified first. What is newer is set aside below ``generations/set-aside/``, not deleted, so that it can
        be undone. A power cut at any moment leaves the run as it was or as it is afterwards.

        :raises BadInputError: there is none of this name.
        :raises DamagedRunError: it is not whole; nothing was changed.
        """
        self._require_open()
        with self._mutex:
            name = self.find(which)
            manifest = self.read(str(name)).manifest
            moves = plan_restore(name, self.names(), self.set_aside())
            try:
                if moves.pairs:
                    moves.write(self.path, self.files)
                    moves.carry_out(self.path, self.files)
            except OSError as error:
                raise RunError(
                    f"Restoring {name} in {self.path} did not finish: {error.strerror or error}.",
                    advice="Every generation is still there. The next start or restore goes on from here.",
                    folder=self.path,
                ) from error
            if moves.pairs:
                self.journal.add("restore", time=now(), generation=str(name), moves=[list(p) for p in moves.pairs])
            return manifest

    def undo_restore(self) -> Manifest:
        """Bring back what the last restore set aside.

        :raises ArgumentValueError: nothing is set aside.
        """
        self._require_open()
        candidates = [names for names in self.set_aside().values() if any(not name.error for name in names)]
        if not candidates:
            raise ArgumentValueError(f"Nothing is set aside in {self.path}, so no restore can be undone.")
        return self.restore(str([name for name in candidates[-1] if not name.error][-1]))


def refuse_non_finite(packed: PackedContent, run: RunView) -> None:
    """Refuse weights that are not finite numbers: such a state is never called good.

    :raises SaveError: names them, and the generation that is good.
    """
    names = non_finite_names(packed.weights)
    if names:
        good = [str(name) for name in run.names() if not name.error]
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        raise SaveError(
            f"The state at iteration {packed.content.iteration:,} was not saved: weights are not finite numbers "
            f"({shown}).",
            advice=f"Generation {good[-1]} is good; restart from it, with a lower learning rate for example."
            if good
            else "Start again with a lower learning rate.",
            folder=run.path,
            iteration=packed.content.iteration,
            non_finite=names,
        )


def _with_optimizer(manifests: Sequence[Manifest]) -> Manifest | None:
    found = [m for m in manifests if OPTIMIZER_FILE in m.files]
    return found[-1] if found else None


def _in_place_of(replaced: Manifest, manifest: Manifest) -> Manifest:
    """A manifest with what it inherits from an older generation of the same iteration."""
    if manifest.average_loss is None:
        manifest = replace(manifest, average_loss=replaced.average_loss, average_count=replaced.average_count)
    return manifest.with_reasons(*replaced.reasons)
