"""Lists of arrays, as MXNet keeps parameters (``.params``): with names or without."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from ostinato.errors import BadInputError
from ostinato.optim.mxnet_files.array_record import Array, array_bytes, read_array
from ostinato.optim.mxnet_files.byte_reader import ByteReader

MARK = 0x112
SMALLEST_ARRAY = 4
SMALLEST_NAME = 8


def read_array_list(path: str | Path) -> dict[str, Array] | list[Array]:
    """Read a file of arrays.

    :returns: arrays by name, or a list where the file has no names. Checkpoints of the symbolic interface put ``arg:``
        and ``aux:`` before names; they stay. Tensors are on the CPU.
    :raises BadInputError: the file is missing or damaged. Fields: ``path`` and, inside the file, ``offset``.
    """
    reader = ByteReader(read_file(path), str(path))
    mark = reader.number("Q", "the mark of a list of arrays")
    if mark != MARK:
        reader.refuse(f"the mark 0x{MARK:X} of a list of arrays should stand, and there is 0x{mark:X}", at=0)
    reader.take(8, "the reserved field")
    arrays = [read_array(reader) for _ in range(_count(reader, "arrays", SMALLEST_ARRAY))]
    at = reader.position
    named = _count(reader, "names", SMALLEST_NAME)
    if named not in (0, len(arrays)):
        reader.refuse(f"there are {named} names for {len(arrays)} arrays", at=at)
    names: dict[str, Array] = {}
    for array in arrays[:named]:
        at = reader.position
        name = _name(reader)
        if name in names:
            reader.refuse(f"the name {name!r} comes a second time", at=at)
        names[name] = array
    if reader.remaining:
        reader.refuse(f"{reader.remaining} bytes follow the end of the list")
    return names if named else arrays


def write_array_list(file: BinaryIO, arrays: Mapping[str, Array] | Sequence[Array]) -> None:
    """Write arrays so that MXNet reads them.

    :param file: open for writing in binary. The caller decides how durable the writing is.
    :param arrays: by name, or a list for a file without names.
    :raises ArgumentTypeError: MXNet has no such dtype or layout.
    """
    names = list(arrays) if isinstance(arrays, Mapping) else []
    values = list(arrays.values()) if isinstance(arrays, Mapping) else list(arrays)
    file.write(struct.pack("<QQQ", MARK, 0, len(values)))
    for array in values:
        file.write(array_bytes(array))
    file.write(struct.pack("<Q", len(names)))
    for name in names:
        encoded = name.encode()
        file.write(struct.pack("<Q", len(encoded)) + encoded)


def read_file(path: str | Path) -> bytes:
    """Read a whole file.

    :raises BadInputError: it cannot be opened. Field: ``path``.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadInputError(
            f"{path} cannot be opened: {error.strerror or error}.", advice="Check the path.", path=str(path)
        ) from error


def _count(reader: ByteReader, what: str, smallest: int) -> int:
    at = reader.position
    count = reader.number("Q", f"the number of {what}")
    if count * smallest > reader.remaining:
        reader.refuse(f"{count} {what} should follow, and {reader.remaining} bytes are left", at=at)
    return count


def _name(reader: ByteReader) -> str:
    encoded = reader.take(reader.number("Q", "the length of a name"), "a name")
    try:
        return str(encoded, "utf-8")
    except UnicodeDecodeError:
        reader.refuse("a name is not UTF-8", at=reader.position - len(encoded))
