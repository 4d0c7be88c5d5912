"""Files of a generation that several ranks have written parts of: tables cut by rows, and each rank's own state.

Any number of ranks reads them. A part is checked by one of the ranks that load, see :func:`is_checked_by`, so that the
work is shared as it was when they were written.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ostinato.dist.per_rank import RankStates
from ostinato.errors import DamagedRunError
from ostinato.runs.generation_files import Damage, DamagedGenerationError, blaming, read_json, recorded, using
from ostinato.runs.manifest import Manifest
from ostinato.runs.part_names import RANK_STEM, PartName
from ostinato.runs.row_cut import ROWS_KEY, RowCutTable, RowPart
from ostinato.runs.tensor_file import TensorPlace, read_header, read_tensors
from ostinato.runs.tree import SharedLeaf, Tree, unpack_tree

OPTIMIZER_PREFIX = "optimizer-"
"""Begins the names of the files with rows of the optimizer's tables, so that they can be carried on with its state."""


def row_metadata(ranges: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """The text for the header of a file of rows.

    :param ranges: by table, the first row in this file and the rows of the whole table.
    """
    return {ROWS_KEY: json.dumps({name: list(pair) for name, pair in ranges.items()})}


def is_checked_by(file: str, rank: int, size: int) -> bool:
    """Whether this rank of so many checks a file; the files that are not cut are read, and so checked, by all."""
    part = PartName.parse(file)
    return part is None or part.index % size == rank


class SharedFiles:
    """The shared files of one generation. Headers and small files are read when they are first asked for.

    :param folder: of the generation.
    :param manifest: its manifest.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self._manifest = manifest
        self._parts = {name: part for name in manifest.files if (part := PartName.parse(name)) is not None}
        self._rank_file = functools.cache(self._read_rank_file)
        self._header = functools.cache(self._read_header)

    def leaves(self, prefix: str = "") -> dict[str, SharedLeaf]:
        """What :func:`~ostinato.runs.tree.unpack_tree` puts in the place of the marks of a tree.

        :param prefix: of the names that this tree's leaves have in the files.
        """
        return {
            "$rows": lambda mark: self.table(prefix + str(mark["file"]), str(mark["table"])),
            "$ranks": lambda name: self.states(prefix + str(name)),
        }

    def table(self, stem: str, name: str) -> RowCutTable:
        """A table that is cut by rows.

        :raises DamagedGenerationError: its parts do not fit together.
        """
        parts: list[RowPart] = []
        first: tuple[Path, TensorPlace, int] | None = None
        for file in sorted(file for file, part in self._parts.items() if part.stem == stem):
            path = self.folder / file
            places, ranges = self._header(file)
            if name not in places or name not in ranges:
                continue
            place, (first_row, total) = places[name], ranges[name]
            if not place.shape:
                raise self._damage(file, f"holds a single number for the table {name!r}")
            first = first or (path, place, total)
            other, known, known_total = first
            for what, here, there in (
                ("numbers of type", place.dtype, known.dtype),
                ("rows of shape", list(place.shape[1:]), list(known.shape[1:])),
                ("a total of rows of", total, known_total),
            ):
                if here != there:
                    raise self._damage(file, f"gives {what} {here} for the table {name!r}, and {other.name} {there}")
            parts.append(RowPart(path, first_row, first_row + place.shape[0], place.start))
        if first is None:
            raise self._damage(str(PartName(stem, 0, 1)), f"is missing; no file holds rows of the table {name!r}")
        return RowCutTable(name, first[1].dtype, first[1].shape[1:], first[2], parts)

    def states(self, leaf: str) -> RankStates:
        """What the ranks saved for one place of the tree."""
        return RankStates(
            self._count(), lambda rank: self._rank_value(rank, lambda content: content["leaves"].get(leaf))
        )

    def own_states(self) -> RankStates:
        """What the ranks saved beside the tree."""
        return RankStates(self._count(), lambda rank: self._rank_value(rank, lambda content: content["state"]))

    def _count(self) -> int:
        counts = {part.count for part in self._parts.values() if part.stem == RANK_STEM}
        return max(counts, default=self._manifest.world_size)

    def _rank_value(self, rank: int, choose: Callable[[dict[str, Any]], Any]) -> Tree:
        file = str(PartName(RANK_STEM, rank, self._count(), "json"))
        if file not in self._manifest.files:
            return None
        try:
            content, tensors = self._rank_file(file)
            return using(self.folder, file, lambda: unpack_tree(choose(content), tensors))
        except DamagedGenerationError as error:  # it is read when it is asked for, and was whole before
            raise DamagedRunError(
                f"{error.damage}.",
                advice="It was whole when the run was loaded. Start again; the generation before is used if need be.",
                folder=self.folder,
                damage=[error.damage],
            ) from error

    def _read_rank_file(self, file: str) -> tuple[dict[str, Any], dict[str, Any]]:
        content = read_json(self.folder, self._manifest, file)
        tensor_file = file.removesuffix(".json") + ".safetensors"
        if tensor_file not in self._manifest.files:
            return content, {}
        record = recorded(self._manifest, tensor_file)
        path = self.folder / tensor_file
        return content, blaming(self.folder, tensor_file, lambda: read_tensors(path, record))

    def _read_header(self, file: str) -> tuple[dict[str, TensorPlace], dict[str, tuple[int, int]]]:
        places, metadata = blaming(self.folder, file, lambda: read_header(self.folder / file))

        def ranges() -> dict[str, tuple[int, int]]:
            found = {}
            for name, (first, total) in json.loads(metadata.get(ROWS_KEY, "{}")).items():
                if not 0 <= int(first) <= int(total):
                    raise ValueError(f"the rows of the table {name!r} begin with {first} of {total}")
                found[str(name)] = (int(first), int(total))
            return found

        return places, using(self.folder, file, ranges)

    def _damage(self, file: str, what: str) -> DamagedGenerationError:
        return DamagedGenerationError(Damage(self.folder.name, file, what))
