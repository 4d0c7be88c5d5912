"""A run folder to look at: what is there, by names and manifests. Nothing here writes, and nothing needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.errors import BadInputError
from ostinato.runs.generation_files import Damage, DamagedGenerationError, read_manifest_of, read_state
from ostinato.runs.identity import RUN_FILE
from ostinato.runs.journal import JOURNAL_FILE, Journal
from ostinato.runs.manifest import GenerationName, Manifest
from ostinato.runs.moves import SET_ASIDE

GENERATIONS = "generations"
DAMAGED = "damaged"


@dataclass(frozen=True)
class Scan:
    """What lies in ``generations/``, by the manifests alone.

    :param manifests: oldest first.
    :param damage: of those whose manifest cannot be used.
    """

    manifests: tuple[Manifest, ...] = ()
    damage: tuple[Damage, ...] = ()


@dataclass
class RunView:
    """A run folder, read only.

    :param path: the folder. It need not exist.
    """

    path: Path

    def __post_init__(self) -> None:
        self.path = Path(self.path)

    @property
    def generations_path(self) -> Path:
        """The folder of the generations."""
        return self.path / GENERATIONS

    def names(self) -> list[GenerationName]:
        """Names of the generations that are there, oldest first, whole or not."""
        return sorted(_names_in(self.generations_path))

    def set_aside(self) -> dict[str, list[GenerationName]]:
        """What restores have set aside: by folder name below ``set-aside/``, oldest restore first."""
        root = self.generations_path / SET_ASIDE
        if not root.is_dir():
            return {}
        return {entry.name: sorted(_names_in(entry)) for entry in sorted(root.iterdir()) if entry.is_dir()}

    def scan(self) -> Scan:
        """The manifests of all generations. The other files are not read."""
        manifests, damage = [], []
        for name in self.names():
            try:
                manifests.append(read_manifest_of(self.generations_path / str(name)))
            except DamagedGenerationError as error:
                if (self.generations_path / str(name)).exists():  # else the trainer removed it while we looked
                    damage.append(error.damage)
        return Scan(tuple(manifests), tuple(damage))

    def lost_state(self) -> str:
        """Why this run cannot be new although it has no generation to go on from, as a sentence; empty where it can.

        Asked where :meth:`names` has none, or only those of errors.
        """
        journal = Journal(self.path / JOURNAL_FILE)
        places = [self.generations_path / DAMAGED, self.generations_path / SET_ASIDE]
        was_saved = journal.tells_of_commits()
        if any(not name.error for name in self.names()):
            return ""  # the first save has come while we looked, and its line in the journal
        if was_saved or any(path.is_dir() and any(path.iterdir()) for path in places):
            return f"The run {self.path} has been saved before, but no usable generation is left in {GENERATIONS}/."
        if (self.path / RUN_FILE).exists() and not journal.tells_of_the_beginning():
            return (
                f"The run {self.path} was begun before, and may have been saved: no generation is left in "
                f"{GENERATIONS}/, and {JOURNAL_FILE} does not tell."
            )
        return ""

    def find(self, which: int | str) -> GenerationName:
        """A generation by its iteration or by its name.

        :raises BadInputError: there is none; the message lists those that are there.
        """
        text = str(which).replace(",", "").replace("_", "")
        everywhere = [*self.names(), *(name for names in self.set_aside().values() for name in names)]
        exact = [name for name in everywhere if str(name) == text]
        same = [name for name in everywhere if text.isascii() and text.isdigit() and name.iteration == int(text)]
        regular = sorted(name for name in same if not name.error)
        for found in (exact, regular, same):
            if found:
                return found[-1]
        there = ", ".join(str(name) for name in sorted(set(everywhere))) or "none"
        raise BadInputError(
            f"The run {self.path} has no generation {which}.", advice=f"Generations: {there}.", folder=self.path
        )

    def locate(self, name: GenerationName) -> Path:
        """The folder of a generation, wherever it is."""
        for place in (self.generations_path, *(self.generations_path / SET_ASIDE / a for a in self.set_aside())):
            if (place / str(name)).is_dir():
                return place / str(name)
        return self.generations_path / str(name)

    def state_of(self, name: GenerationName) -> dict[str, Any]:
        """The state file of a generation as plain JSON: sessions, options, counters.

        :raises DamagedGenerationError: it is not whole.
        """
        return read_state(self.locate(name))


def _names_in(folder: Path) -> list[GenerationName]:
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:
        return []
    return [name for entry in entries if (name := GenerationName.parse(entry.name)) is not None]
