"""Tables that are cut by rows over the ranks: how they are handed over to be saved, and how they come back.

A state tree that is saved may hold :class:`RowCut` leaves. Each rank hands over the rows it owns; they go to one file
per rank, with the range of the rows in its header, and no rank ever holds the whole table. When the state is loaded,
in each of these places is a :class:`RowCutTable`, from which any rank of any number of ranks reads the range it owns
now::

    def state_dict(self):
        return {"centres": RowCut(self.weight, self.first, self.total, file="centres")}

    def load_state_dict(self, state):
        self.weight.copy_(state["centres"].read(self.first, self.last))
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ostinato.errors import ArgumentTypeError, ArgumentValueError, DamagedRunError
from ostinato.runs.atomic import PIECE_BYTES, ChecksumMismatchError, open_regular
from ostinato.runs.generation_files import Damage, DamagedGenerationError
from ostinato.runs.part_names import RANK_STEM
from ostinato.runs.tensor_file import bytes_of

ROWS_KEY = "rows"
"""Key in the header's metadata; its value is JSON: for each table the first row here and the rows of the whole."""

_STEM = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TAKEN = frozenset({RANK_STEM, "model", "optimizer", "state"})


@dataclass(frozen=True, eq=False)
class RowCut:
    """The rows of a table that this rank owns; a leaf of a state tree.

    All ranks hand over the same leaves at the same places of their trees. The cuts of a table must cover it without
    gaps and overlaps; a rank may own no row at all.

    :param tensor: of shape ``[rows, ...]``, dense, on any device; rows of no numbers are none.
    :param first_row: number of its first row in the whole table.
    :param total_rows: rows of the whole table.
    :param file: the start of the name of the files it is saved in; several tables may share them.
    :raises ArgumentTypeError: it is no table.
    :raises ArgumentValueError: the range or the file name is not allowed.
    """

    tensor: Tensor
    first_row: int
    total_rows: int
    file: str = "rows"

    def __post_init__(self) -> None:
        if self.tensor.dim() < 1:
            raise ArgumentTypeError("A row cut needs a tensor with rows; this one has no dimension.")
        if not 0 <= self.first_row <= self.first_row + len(self.tensor) <= self.total_rows:
            raise ArgumentValueError(
                f"Rows {self.first_row} to {self.first_row + len(self.tensor)} do not lie in a table of "
                f"{self.total_rows} rows.",
                first_row=self.first_row,
                total_rows=self.total_rows,
            )
        if not _STEM.fullmatch(self.file) or self.file in _TAKEN:
            raise ArgumentValueError(
                f"{self.file!r} cannot begin the name of a file of rows.",
                advice="Use small letters, digits and underscores, and none of the names that a generation has.",
                file=self.file,
            )


@dataclass(frozen=True)
class RowPart:
    """One file's rows of a table.

    :param path: the file.
    :param first: its first row.
    :param last: one past its last row.
    :param offset: where the rows begin, in bytes from the start of the file.
    """

    path: Path
    first: int
    last: int
    offset: int


class RowCutTable:
    """A table on disk, read by row ranges; nothing is read before :meth:`read`.

    Read what is needed while the state is loaded: the generation it lies in may be removed by later saves.

    :param name: for messages.
    :param dtype: of the numbers.
    :param row_shape: shape of one row.
    :param total_rows: rows of the table.
    :param parts: where they are, in any order.
    :raises DamagedGenerationError: the parts leave a gap or overlap; the files are named.
    """

    def __init__(
        self, name: str, dtype: torch.dtype, row_shape: Sequence[int], total_rows: int, parts: Sequence[RowPart]
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.row_shape = tuple(row_shape)
        self.total_rows = total_rows
        self.parts = tuple(sorted(parts, key=lambda part: (part.first, part.last)))
        end, before = 0, None
        for part in self.parts:
            if part.first != end:
                raise _damage(part.path, self._what_is_wrong(end, part, before))
            end, before = part.last, part
        if end != total_rows:
            place = before.path if before is not None else Path("state.json")
            raise _damage(place, f"is followed by no file with rows {end:,} to {total_rows:,} of the table {name!r}")

    def _what_is_wrong(self, end: int, part: RowPart, before: RowPart | None) -> str:
        if part.first < end:
            other = before.path.name if before is not None else ""
            return f"holds rows from {part.first:,} of the table {self.name!r}, which {other} holds up to {end:,}"
        after = f" after {before.path.name}" if before is not None else ""
        return f"begins with row {part.first:,} of the table {self.name!r}; rows {end:,} to {part.first:,}{after} lack"

    def __len__(self) -> int:
        return self.total_rows

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole table."""
        return (self.total_rows, *self.row_shape)

    def read(self, first: int = 0, last: int | None = None) -> Tensor:
        """Rows ``first`` to ``last`` (not included; by default to the end), whichever files hold them.

        Needs memory for these rows and no more.

        :return: a CPU tensor of shape ``[last - first, ...]``.
        :raises ArgumentValueError: the table has no such rows.
        :raises DamagedRunError: a file is gone or was cut off since the state was loaded.
        """
        last = self.total_rows if last is None else last
        if not 0 <= first <= last <= self.total_rows:
            raise ArgumentValueError(
                f"The table {self.name!r} has {self.total_rows:,} rows; {first:,} to {last:,} cannot be read.",
                first=first,
                last=last,
            )
        rows = torch.empty((last - first, *self.row_shape), dtype=self.dtype)
        width = math.prod(self.row_shape) * self.dtype.itemsize
        if rows.numel() == 0:
            return rows
        target = bytes_of(rows.view(-1).view(torch.uint8))
        for part in self.parts:
            begin, end = max(first, part.first), min(last, part.last)
            if begin < end:
                piece = target[(begin - first) * width : (end - first) * width]
                _read_at(part.path, part.offset + (begin - part.first) * width, piece)
        return rows

    def pieces(self, rows: int) -> Iterator[tuple[int, Tensor]]:
        """The whole table in pieces of so many rows: number of the first row, and the rows."""
        for first in range(0, self.total_rows, rows):
            yield first, self.read(first, min(first + rows, self.total_rows))

    def __repr__(self) -> str:
        return f"RowCutTable({self.name!r}, {self.dtype}, {list(self.shape)}, {len(self.parts)} file(s))"


def _read_at(path: Path, offset: int, target: memoryview) -> None:
    # By reads at a place and not by mapping the file into memory: a file that was cut off since is an error here, and
    # would be the end of the process there.
    try:
        with io.FileIO(open_regular(path), "rb") as file:
            file.seek(offset)
            while len(target):
                got = file.readinto(target[:PIECE_BYTES])
                if not got:
                    raise ChecksumMismatchError("ends before its rows do")
                target = target[got:]
    except (OSError, ChecksumMismatchError) as error:
        raise DamagedRunError(
            f"{path} {error}.",
            advice="It was whole when the run was loaded. Start again; the generation before is used if need be.",
            folder=path.parent,
            damage=[Damage(path.parent.name, path.name, str(error))],
        ) from error


def _damage(path: Path, what: str) -> DamagedGenerationError:
    return DamagedGenerationError(Damage(path.parent.name, path.name, what))
