"""Lists of pairs as text: which pictures of a folder are compared, and whether they show the same person.

::

    # ostinato pair list 1
    # folder: ../people
    # folds: 10
    # seed: 1
    # folds are disjoint in people: yes
    same	anna/1.jpg	anna/7.jpg
    different	anna/2.jpg	bela/1.jpg

Three columns divided by tabs; paths are relative to the folder, and with forward slashes. The folder is relative to the
list, or absolute. Lines that begin with ``#`` and are none of the above are passed over, as are empty ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ostinato.data.count_of import count_of
from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError
from ostinato.recognition.data.image_folder import FolderSet, scan_identities
from ostinato.recognition.verification.folds import FOLDS
from ostinato.recognition.verification.pair_making import PAIRS, make_pairs
from ostinato.recognition.verification.pair_set import PairSet
from ostinato.recognition.verification.pictures import PictureFile
from ostinato.runs.atomic import Files

FIRST_LINE = "# ostinato pair list 1"
MAX_BYTES = 256 * 2**20
MAX_FOLDS = 1000

SHARED_PEOPLE = (
    "There are too few people to give each fold its own, so those whose pairs decide on a threshold are also those "
    "it is tried on: the accuracy flatters a little."
)

_DISJOINT = "folds are disjoint in people"
_WORDS = {True: "same", False: "different"}


@dataclass(frozen=True, eq=False)
class PairList:
    """Pairs of files of one folder.

    :param folder: where the pictures are.
    :param files: paths relative to it, with forward slashes, each once.
    :param pairs: (P, 2) their numbers.
    :param same: (P,) whether they show the same person.
    :param folds: into how many blocks the pairs are to be cut.
    :param folds_are_disjoint: whether no person is in two folds; None where nobody has said.
    :param seed: what the pairs were drawn with; None where nobody has said.
    """

    folder: Path
    files: tuple[str, ...]
    pairs: NDArray[np.int64]
    same: NDArray[np.bool_]
    folds: int = FOLDS
    folds_are_disjoint: bool | None = None
    seed: int | None = None

    def pair_set(self, name: str) -> PairSet:
        """The pairs, ready to be verified."""
        shared = self.folds_are_disjoint is False and self.folds > 1
        pictures = [PictureFile(self.folder / file) for file in self.files]
        return PairSet(name, pictures, self.pairs, self.same, self.folds, (SHARED_PEOPLE,) if shared else ())


def make_pair_list(
    folder: str | os.PathLike[str],
    *,
    pairs: int = PAIRS,
    folds: int = FOLDS,
    seed: int = 1,
    tell: Callable[[str], None] | None = None,
) -> PairList:
    """Make pairs of a folder with one sub-folder per person; see :mod:`~.pair_making`.

    :param tell: called with what is odd about the folder, sentence by sentence.
    :raises BadInputError: the folder cannot be used, or gives too few pairs.
    """
    found = scan_identities(folder)
    if tell is not None:
        for note in found.notes():
            tell(note)
    made = make_pairs([len(identity.files) for identity in found.identities], pairs=pairs, folds=folds, seed=seed)
    names = _names(found)
    places: dict[int, int] = {}  # numbers of pictures to their places in the order of first use
    rows = [[places.setdefault(int(number), len(places)) for number in pair] for pair in made.pairs]
    files = tuple(names[number] for number in places)
    pairs_of_files = np.asarray(rows, np.int64)
    return PairList(Path(folder), files, pairs_of_files, made.same, made.folds, made.folds_are_disjoint, seed)


def _names(found: FolderSet) -> list[str]:
    return [
        PurePosixPath(identity.name, *Path(file).parts).as_posix()
        for identity in found.identities
        for file in identity.files
    ]


def write_pair_list(path: str | os.PathLike[str], pairs: PairList) -> None:
    """Write a list, in one step.

    :raises BadInputError: a name holds a tab, a line break, or bytes that are no text. Field: ``path``.
    :raises OSError: the disk refuses.
    """
    target = Path(path)
    lines = [
        FIRST_LINE,
        f"# folder: {_written(_relative(pairs.folder, target.parent))}",
        f"# folds: {pairs.folds}",
    ]
    if pairs.seed is not None:
        lines.append(f"# seed: {pairs.seed}")
    if pairs.folds_are_disjoint is not None:
        lines.append(f"# {_DISJOINT}: {'yes' if pairs.folds_are_disjoint else 'no'}")
    written = [_written(file) for file in pairs.files]
    lines += [
        f"{_WORDS[bool(same)]}\t{written[one]}\t{written[other]}"
        for same, (one, other) in zip(pairs.same, pairs.pairs, strict=True)
    ]
    Files().make_folder(target.parent)
    Files().replace(target, ("\n".join(lines) + "\n").encode())


def _relative(folder: Path, start: Path) -> str:
    try:
        return Path(os.path.relpath(folder, start)).as_posix()
    except ValueError:  # another drive
        return folder.absolute().as_posix()


def _written(name: str) -> str:
    if any(character in name for character in "\t\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029"):
        problem = "a tab or a line break"
    else:
        try:
            name.encode()
            return name
        except UnicodeEncodeError:
            problem = "bytes that are no text"
    raise BadInputError(
        f"{shown_name(name)} holds {problem} in its name, which a list of pairs cannot.",
        advice="Give it another name.",
        path=name,
    )


def read_pair_list(path: str | os.PathLike[str]) -> PairList:
    """Read a list.

    :raises BadInputError: it cannot be read or is no list, or a path leaves the folder. Fields: ``path``, ``line``.
    """
    return _Reader(Path(path)).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0

    def _refuse(self, why: str) -> NoReturn:
        raise BadInputError(
            f"{shown_name(self._path)}, line {self._number}: {why}.",
            advice="`ostinato recognition pairs` writes such lists.",
            path=str(self._path),
            line=self._number,
        )

    def _text(self) -> str:
        try:
            if self._path.stat().st_size > MAX_BYTES:
                self._refuse(f"the file is larger than {MAX_BYTES:,} bytes")
            return self._path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise BadInputError(
                f"{shown_name(self._path)} cannot be read: {error.strerror or error}.",
                advice="Check the path.",
                path=str(self._path),
            ) from error
        except UnicodeDecodeError:
            self._refuse("it is no text")

    def read(self) -> PairList:
        folder = self._path.parent
        folds, disjoint, seed = FOLDS, None, None
        files: dict[str, int] = {}
        pairs: list[tuple[int, int]] = []
        same: list[bool] = []
        for number, raw in enumerate(self._text().split("\n"), 1):
            self._number = number
            line = raw.rstrip("\r")
            if self._number == 1 and line != FIRST_LINE:
                self._refuse(f"a list of pairs begins with {FIRST_LINE!r}")
            key, _, value = line.removeprefix("#").strip().partition(": ")
            if line.startswith("#"):
                if key == "folder":
                    folder = self._path.parent / value
                elif key == "folds":
                    folds = self._whole(value, 1, MAX_FOLDS)
                elif key == "seed":
                    seed = self._whole(value, 0, 2**63)
                elif key == _DISJOINT:
                    disjoint = value == "yes"
            elif line.strip():
                answer, one, other = self._columns(line)
                same.append(answer)
                pairs.append((files.setdefault(one, len(files)), files.setdefault(other, len(files))))
        if not pairs:
            self._refuse("there are no pairs in it")
        return PairList(folder, tuple(files), np.asarray(pairs, np.int64), np.asarray(same), folds, disjoint, seed)

    def _whole(self, text: str, low: int, high: int) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            self._refuse(f"{text[:40]!r} is no whole number from {low} to {high}")
        return int(text)

    def _columns(self, line: str) -> tuple[bool, str, str]:
        columns = line.split("\t")
        if len(columns) != 3 or columns[0] not in _WORDS.values():
            self._refuse("'same' or 'different' and two paths should stand here, divided by tabs")
        for name in columns[1:]:
            path = PurePosixPath(name)
            if not name or path.is_absolute() or ".." in path.parts or Path(name).is_absolute() or "\0" in name:
                self._refuse(f"the path {shown_name(name)!r} leaves the folder of the list")
        return columns[0] == "same", columns[1], columns[2]


def describe_pair_list(pairs: PairList) -> str:
    """One sentence about what a list holds."""
    same = int(pairs.same.sum())
    text = (
        f"{count_of(len(pairs.same), 'pair')} of {count_of(len(pairs.files), 'picture')}: {same:,} of the same person, "
        f"{len(pairs.same) - same:,} of different people, in {count_of(pairs.folds, 'fold')}"
    )
    if pairs.folds > 1 and pairs.folds_are_disjoint is not None:
        text += ", no person in two of them" if pairs.folds_are_disjoint else " that share people"
    return text
