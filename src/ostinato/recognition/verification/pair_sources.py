"""From a path to pairs: a ``.bin`` file, a list of pairs, or a folder of people."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ostinato.data.file_names import shown_name
from ostinato.errors import BadInputError
from ostinato.recognition.verification.pair_file import read_pair_file
from ostinato.recognition.verification.pair_list import FIRST_LINE, describe_pair_list, make_pair_list, read_pair_list
from ostinato.recognition.verification.pair_set import PairSet

_PICKLE_STARTS = (b"\x80", b"(", b"]")
"""The first bytes that a pickle of a pair of lists can have, the second and third of them in protocol 1."""


def open_pairs(path: str | os.PathLike[str], *, tell: Callable[[str], None] | None = None) -> PairSet:
    """Read pairs. Which kind of file it is is seen from its first bytes, not from its name.

    :param tell: called with what was made of a folder, sentence by sentence.
    :raises BadInputError: there is nothing, or it cannot be used.
    """
    path = Path(path)
    if path.is_dir():
        made = make_pair_list(path, tell=tell)
        if tell is not None:
            tell(f"Made of the folder {shown_name(path)}: {describe_pair_list(made)}.")
        return made.pair_set(path.resolve().name)
    if not path.exists():
        raise BadInputError(
            f"There is no {shown_name(path)}.",
            advice="Give a .bin file, a list of pairs (`ostinato recognition pairs` makes one), or a folder with one "
            "sub-folder of pictures per person.",
            path=str(path),
        )
    with open(path, "rb") as file:
        start = file.read(len(FIRST_LINE) + 3)
    if start.removeprefix(b"\xef\xbb\xbf").startswith(FIRST_LINE.split(" 1")[0].encode()):
        return read_pair_list(path).pair_set(path.stem)
    if start[:1] not in _PICKLE_STARTS:
        kind = "is empty" if not start else "is neither a .bin pair file nor a list of pairs"
        raise BadInputError(
            f"{shown_name(path)} {kind}.",
            advice="It may be a list of another program, or what a download left. `ostinato recognition pairs` makes "
            "pairs of a folder of people.",
            path=str(path),
        )
    return read_pair_file(path)
